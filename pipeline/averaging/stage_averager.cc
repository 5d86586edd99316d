#include "pipeline/averaging/stage_averager.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/marks.h"
#include "pipeline/protocol/message_kinds.h"

namespace swarmline {

// Whoever is spoken for sends so much before its speaker has begun: of two groups, two attempts.
static_assert(StageAverager::kEarlyChunksOfOneMax >= 4 * std::size_t{kIslandFirstChunks});

StageAverager::StageAverager(std::function<void(const Seat&, Frame)> send,
                             std::function<void(const Seat&, const Error&)> disconnect,
                             std::function<bool(const Seat&)> shares_memory,
                             std::function<void(std::function<void()>)> later)
    : send_(std::move(send)),
      disconnect_(std::move(disconnect)),
      shares_memory_(std::move(shares_memory)),
      later_(std::move(later)) {}

Result<void> StageAverager::check(const Round& round) {
  if (!round.islands) return ButterflyAllReduce::check_spec(round.spec, round.input, round.output);
  if (round.islands->speakers.size() != round.members.size())
    return fail(ErrorCode::kIncompatible, "a round whose islands have other members");
  return check_islands(*round.islands, round.spec, round.input, round.output);
}

std::unique_ptr<AllReduce> StageAverager::reduce_of(Round& round) {
  if (round.islands)
    return make_island_all_reduce(*round.islands, round.spec, round.input, round.output,
                                  round.residual);
  auto butterfly =
      std::make_unique<ButterflyAllReduce>(round.spec, round.input, round.output, round.residual);
  if (!round.parts.empty()) butterfly->take_parts(std::exchange(round.parts, {}));
  if (round.on_sum) butterfly->watch_sums(round.on_sum);
  return butterfly;
}

// A sum is encoded once for all, so that all it goes to have to share memory with this one.
void StageAverager::leave_out_checksums(Round& round) const {
  if (!shares_memory_) return;
  const auto shares = [&](std::uint32_t rank) { return shares_memory_(round.members[rank]); };
  std::vector<std::uint32_t> speaking, mates;  // ranks in the group
  if (round.islands) {
    const auto& [own, speakers] = *round.islands;
    if (speakers[own] != own) {  // it sends to its speaker alone
      if (shares(speakers[own])) round.spec.scatter[round.spec.rank].checksums = false;
      return;
    }
    speaking = round.islands->speaking();
    for (std::uint32_t rank = own + 1; rank < speakers.size(); ++rank)
      if (speakers[rank] == own) mates.push_back(rank);
  }
  bool with_all = std::ranges::all_of(mates, shares);
  for (std::uint32_t rank = 0; rank < round.spec.ranks; ++rank) {
    if (rank == round.spec.rank) continue;
    const bool with_it = shares(speaking.empty() ? rank : speaking[rank]);
    if (with_it) round.spec.scatter[rank].checksums = false;
    with_all = with_all && with_it;
  }
  if (with_all) round.spec.gather.checksums = false;
}

Result<void> StageAverager::start(Round round) {
  SWARMLINE_TRY(check(round));
  leave_out_checksums(round);
  const RoundKey key = round.key;
  forget_before(key);
  Running& running = running_[key];
  running.round = std::move(round);
  running.reduce = reduce_of(running.round);
  hand_out(key);
  auto early = early_.extract(key);
  if (!early.empty()) {
    forget_early(early.mapped());
    std::set<PeerId> refused;
    for (const Early& waiting : early.mapped()) {
      if (refused.contains(waiting.from.peer)) continue;
      if (auto fed = feed_early(running, waiting); !fed) {
        refused.insert(waiting.from.peer);
        disconnect_(waiting.from, fed.error());
      }
    }
  }
  announce(running);
  return {};
}

Result<void> StageAverager::feed_early(Running& running, const Early& early) {
  const auto& members = running.round.members;
  if (std::find(members.begin(), members.end(), early.from) == members.end()) return {};
  auto chunk = parse<wire::ReduceChunk>(early.frame);
  if (!chunk) return std::unexpected(chunk.error());
  return feed(running, early.from, *chunk, early.frame);
}

Result<void> StageAverager::on_chunk(const Seat& from, const Frame& frame) {
  auto chunk = parse<wire::ReduceChunk>(frame);
  if (!chunk) return std::unexpected(chunk.error());
  const RoundKey key{from_wire(chunk->phase()), GroupId{chunk->group()},
                     RoundAttempt{chunk->attempt()}};
  if (auto it = running_.find(key); it != running_.end()) {
    SWARMLINE_TRY(feed(it->second, from, *chunk, frame));
    announce(it->second);
    return {};
  }
  if (key.phase.kind != PhaseKind::kTrain)
    return fail(ErrorCode::kCorrupt, "a chunk of an evaluation");
  if (key.phase.step < retired_below_[key.phase.kind]) return {};
  if (const auto newest = attempts_.find({key.phase, key.group});
      newest != attempts_.end() && key.attempt <= newest->second)
    return {};  // of a round that was given up
  if (early_chunks_ >= kEarlyChunksMax || early_bytes_ >= kEarlyBytesMax ||
      early_of_[from.peer] >= kEarlyChunksOfOneMax)
    return fail(ErrorCode::kCorrupt, "too many chunks before the seal");
  if (frame.payload_bytes() > 2 * Limits::reduce_chunk_bytes)
    return fail(ErrorCode::kCorrupt, "a chunk larger than any chunk is");
  ++early_chunks_;
  early_bytes_ += frame.payload_bytes();
  ++early_of_[from.peer];
  early_[key].push_back({from, frame});
  return {};
}

Result<void> StageAverager::feed(Running& running, const Seat& from, const wire::ReduceChunk& chunk,
                                 const Frame& frame) {
  const auto& members = running.round.members;
  const auto member = std::find(members.begin(), members.end(), from);
  if (member == members.end()) return fail(ErrorCode::kCorrupt, "a chunk from outside the group");
  const auto rank = static_cast<std::uint32_t>(member - members.begin());
  const ReducePart part = chunk.gather() ? ReducePart::kGather : ReducePart::kScatter;
  // Nobody sends a chunk twice in one attempt: one of the two was somebody else's, and it may be
  // the one that is in the sum.
  if (running.reduce->has_taken(rank, part, chunk.chunk())) {
    SWARMLINE_MARK("averager.two_speak_for_one");
    return fail(ErrorCode::kCorrupt, "a chunk came twice: two speak for one member");
  }
  auto sends = running.reduce->on_chunk(
      rank, part, chunk.chunk(), frame.payload.empty() ? SharedBytes() : frame.payload.front());
  if (!sends) return std::unexpected(sends.error());
  for (const ChunkSend& send : *sends) dispatch(running, send);
  return {};
}

void StageAverager::hand_out(const RoundKey& key) {
  const auto at = running_.find(key);
  if (at == running_.end()) return;
  Running& running = at->second;
  const auto send = [&](const ChunkSend& chunk) { dispatch(running, chunk); };
  while (running.reduce->send_more(send))
    if (later_) return later_(guard_.wrap([this, key] { hand_out(key); }));
}

void StageAverager::dispatch(Running& running, const ChunkSend& send) {
  const RoundKey& key = running.round.key;
  wire::ReduceChunk chunk;
  *chunk.mutable_phase() = to_wire(key.phase);
  chunk.set_group(key.group.value);
  chunk.set_attempt(key.attempt.value);
  chunk.set_gather(send.part == ReducePart::kGather);
  chunk.set_chunk(send.chunk);
  for (const SharedBytes& part : send.wire) running.lender.lend(part);
  send_(running.round.members[send.to], make_frame(MessageKind::kReduceChunk, chunk, send.wire));
}

void StageAverager::announce(Running& running) {
  if (running.announced || !running.reduce->done()) return;
  running.announced = true;
  running.lender.take_back();
  running.round.on_done(running.reduce->progress().bytes_to_send);
}

void StageAverager::forget_before(const RoundKey& key) {
  attempts_[{key.phase, key.group}] = key.attempt;
  auto superseded = [&](const RoundKey& other) {
    return other.phase == key.phase && other.group == key.group && other.attempt < key.attempt;
  };
  std::erase_if(running_, [&](const auto& entry) { return superseded(entry.first); });
  for (auto it = early_.begin(); it != early_.end();) {
    if (!superseded(it->first)) {
      ++it;
      continue;
    }
    forget_early(it->second);
    it = early_.erase(it);
  }
}

void StageAverager::abandon(const Phase& phase, std::optional<GroupId> group) {
  std::erase_if(running_, [&](const auto& entry) {
    return entry.first.phase == phase && !entry.second.announced &&
           (!group || entry.first.group == *group);
  });
}

void StageAverager::retire(const Phase& phase) {
  std::erase_if(attempts_, [&](const auto& entry) { return entry.first.first == phase; });
  std::erase_if(running_, [&](const auto& entry) { return entry.first.phase == phase; });
  for (auto it = early_.begin(); it != early_.end();) {
    if (it->first.phase != phase) {
      ++it;
      continue;
    }
    forget_early(it->second);
    it = early_.erase(it);
  }
  std::uint64_t& below = retired_below_[phase.kind];
  below = std::max(below, phase.step + 1);
}

void StageAverager::forget_early(const std::vector<Early>& early) {
  early_chunks_ -= early.size();
  for (const Early& chunk : early) early_bytes_ -= chunk.frame.payload_bytes();
  for (const Early& chunk : early)
    if (auto of = early_of_.find(chunk.from.peer); of != early_of_.end() && --of->second == 0)
      early_of_.erase(of);
}

std::vector<RoundKey> StageAverager::waiting_for(const Seat& peer) const {
  std::vector<RoundKey> keys;
  for (const auto& [key, running] : running_) {
    const auto& members = running.round.members;
    const auto member = std::find(members.begin(), members.end(), peer);
    if (!running.announced && member != members.end() &&
        running.reduce->deals_with(static_cast<std::uint32_t>(member - members.begin())))
      keys.push_back(key);
  }
  return keys;
}

bool StageAverager::reducing() const {
  return std::any_of(running_.begin(), running_.end(),
                     [](const auto& entry) { return !entry.second.announced; });
}

}  // namespace swarmline
