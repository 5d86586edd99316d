#include "pipeline/stage/gradients/island_rounds.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/marks.h"
#include "engine/collective/slices.h"
#include "pipeline/protocol/message_kinds.h"

namespace swarmline {
namespace {

using Way = FabricTransfer::Way;

// Elements: whole cache lines, where that leaves the others' parts of a slice room in the region.
constexpr std::uint64_t kLineElements = 32;

// One behind the other, for so many members.
template <typename Slice>
std::vector<Slice> slices_of(std::uint64_t elements, DType dtype, std::size_t members) {
  const std::vector<double> equal(members, 1.0 / static_cast<double>(members));
  const bool lines = elements >= kLineElements * members * members;
  const auto bounds = slice_bounds(elements, equal, lines ? kLineElements : 1);
  std::vector<Slice> slices;
  for (std::size_t i = 0; i < members; ++i)
    slices.push_back(
        {bounds[i] * size_bytes(dtype), (bounds[i + 1] - bounds[i]) * size_bytes(dtype)});
  return slices;
}

void add_transfer(std::vector<FabricTransfer>& to, Way way, std::size_t with, DeviceAddress memory,
                  std::uint64_t bytes) {
  if (bytes > 0) to.push_back({way, static_cast<std::uint32_t>(with), memory, bytes});
}

}  // namespace

// ---- Meeting ------------------------------------------------------------------------------------

bool IslandRounds::is_current(const RoundPtr& round) const {
  const auto running = rounds_.find(round->key.group);
  return running != rounds_.end() && running->second == round;
}

// False: there is no such fabric here, or this member has left the meeting.
bool IslandRounds::meet(const Round& round) {
  const auto& [members, own, kind, number, is_all] = round.island;
  const auto met = meetings_.find(round.key.group);
  if (met != meetings_.end() && met->second.number == number)
    return met->second.group && met->second.kind == kind && met->second.members == members;
  if (context_.state.gradients() == nullptr || context_.fabric == nullptr ||
      !context_.fabric->offers(kind))
    return false;
  Meeting& meeting = meetings_[round.key.group];
  meeting = {.number = number, .kind = kind, .members = members, .group = nullptr};
  meeting.group = context_.fabric->open(
      kind, own, static_cast<std::uint32_t>(members.size()),
      guard_.wrap([this, group = round.key.group, number, phase = round.key.phase,
                   to_whom = members](std::uint32_t to, Buffer bytes) {
        wire::FabricWord word;
        *word.mutable_phase() = to_wire(phase);
        word.set_group(group.value);
        word.set_meeting(number);
        context_.links.send(to_whom[to], make_frame(MessageKind::kFabricWord, word,
                                                    {SharedBytes(std::move(bytes))}));
      }));
  return true;
}

Result<void> IslandRounds::on_word(const Seat& from, const Frame& frame) {
  const auto word = parse<wire::FabricWord>(frame);
  if (!word) return std::unexpected(word.error());
  const auto met = meetings_.find(GroupId{word->group()});
  const bool is_known = met != meetings_.end();
  if (is_known && word->meeting() == met->second.number)
    return take_word(from, *word, frame.received_payload());
  if ((is_known && word->meeting() < met->second.number) ||
      from_wire(word->phase()).step < first_open_step_) {
    SWARMLINE_MARK("island_rounds.word_too_late");
    return {};
  }
  return keep_early(from, *word, frame);
}

// Each seat has room of its own: what one says in vain is not to cost another its link.
Result<void> IslandRounds::keep_early(const Seat& from, const wire::FabricWord& word,
                                      const Frame& frame) {
  const BytesView bytes = frame.received_payload();
  // Fields that this peer does not know stay in the word.
  if (bytes.size() > kFabricWordBytesMax || frame.meta.size() > kFabricWordBytesMax)
    return swarmline::fail(ErrorCode::kCorrupt, "a word larger than any word is");
  if (early_.size() >= kEarlySeatsMax && !early_.contains(from)) {
    SWARMLINE_MARK("island_rounds.no_room_for_a_word");
    return {};
  }
  std::deque<EarlyWord>& waiting = early_[from];
  if (waiting.size() >= kEarlyWordsOfOneMax)
    return swarmline::fail(ErrorCode::kCorrupt, "too many words before the seal");
  SWARMLINE_MARK("island_rounds.word_waits");
  waiting.push_back({word, Buffer::copy_of(bytes)});
  return {};
}

IslandRounds::EarlyWords IslandRounds::take_early(
    const std::function<bool(const wire::FabricWord&)>& which) {
  EarlyWords taken;
  for (auto& [from, waiting] : early_) {
    std::deque<EarlyWord> left;
    for (EarlyWord& early : waiting)
      (which(early.word) ? taken[from] : left).push_back(std::move(early));
    waiting = std::move(left);
  }
  std::erase_if(early_, [](const auto& of_one) { return of_one.second.empty(); });
  return taken;
}

// What was said before this member was told to come; of meetings that are over nothing is kept.
void IslandRounds::feed_early(GroupId group) {
  const std::uint64_t number = meetings_.at(group).number;
  const EarlyWords early = take_early([&](const wire::FabricWord& word) {
    return GroupId{word.group()} == group && word.meeting() <= number;
  });
  for (const auto& [from, words] : early) {
    for (const auto& [word, bytes] : words) {
      if (word.meeting() < number) continue;
      if (auto taken = take_word(from, word, bytes.bytes()); !taken)
        context_.links.disconnect(from, taken.error());
    }
  }
}

Result<void> IslandRounds::take_word(const Seat& from, const wire::FabricWord& word,
                                     BytesView bytes) {
  const GroupId group{word.group()};
  const Meeting& meeting = meetings_.at(group);
  const auto member = std::ranges::find(meeting.members, from);
  if (member == meeting.members.end()) {
    SWARMLINE_MARK("island_rounds.word_from_outside");
    return swarmline::fail(ErrorCode::kCorrupt, "a word from outside the island");
  }
  if (!word.sum_is_here()) {
    if (!meeting.group) return {};  // it is over here
    return meeting.group->on_word(static_cast<std::uint32_t>(member - meeting.members.begin()),
                                  bytes);
  }
  if (member != meeting.members.begin()) {
    SWARMLINE_MARK("island_rounds.not_who_speaks");
    return swarmline::fail(ErrorCode::kCorrupt, "somebody who does not speak has the average");
  }
  const auto running = rounds_.find(group);
  if (running == rounds_.end() || running->second->key.phase != from_wire(word.phase())) return {};
  const RoundPtr round = running->second;
  round->average_is_there = true;
  if (round->stage == Stage::kAwaited) take(round);
  return {};
}

// ---- Rounds -------------------------------------------------------------------------------------

void IslandRounds::begin(const RoundKey& key, Island island, const Region& region,
                         std::uint64_t step) {
  drop([&](const RoundKey& other) { return other.group == key.group; });
  auto round = std::make_shared<Round>();
  round->key = key;
  round->island = std::move(island);
  round->region = region;
  rounds_[key.group] = round;
  if (!meet(*round)) {
    SWARMLINE_MARK("island_rounds.no_such_fabric");
    return context_.runtime.post(guard_.wrap([this, round] {
      if (is_current(round))
        fail(round, {ErrorCode::kDevice, "this peer has no such fabric, or has left the meeting"});
    }));
  }
  SWARMLINE_MARK("island_rounds.begun");
  feed_early(key.group);
  // A device that is full now is not lost: links need no memory of it.
  const auto full = std::make_shared<std::optional<Error>>();
  run(
      round,
      [this, step, full](Round& r) -> Result<void> {
        auto found = find_memory(r, step);
        if (found || found.error().code != ErrorCode::kOutOfMemory) return found;
        *full = std::move(found).error();
        return {};
      },
      [this, full](const RoundPtr& r) { *full ? fail(r, **full) : scatter(r); });
}

void IslandRounds::run(const RoundPtr& round, std::function<Result<void>(Round&)> body,
                       std::function<void(const RoundPtr&)> then) {
  jobs_.run([round, body = std::move(body)] { return body(*round); },
            guard_.wrap([this, round, then = std::move(then)] {
              if (is_current(round)) then(round);
            }));
}

void IslandRounds::exchange(const RoundPtr& round, std::vector<FabricTransfer> transfers,
                            std::function<void(const RoundPtr&)> then) {
  FabricGroup& group = *meetings_.at(round->key.group).group;
  group.exchange(std::move(transfers),
                 guard_.wrap([this, round, then = std::move(then)](Result<void> ended) {
                   if (!is_current(round)) return;
                   if (!ended) return fail(round, ended.error());
                   then(round);
                 }));
}

Result<void> IslandRounds::find_memory(Round& round, std::uint64_t step) {
  const auto sums = context_.state.sums_there(step);
  if (!sums) return std::unexpected(sums.error());
  DeviceOptimizer& memory = *context_.state.device();
  const auto island = memory.arena(DeviceArena::kIsland);
  if (!island) return std::unexpected(island.error());
  const auto reduced = memory.arena(DeviceArena::kReduced);
  if (!reduced) return std::unexpected(reduced.error());
  const std::uint64_t first = round.region.first;
  round.at = {.sums = *sums + first, .island = *island + first, .reduced = *reduced + first};
  return {};
}

// To each its slice; the parts of the own one wait, in rank order, where the average will be.
void IslandRounds::scatter(const RoundPtr& round) {
  const auto& [key, island, region, at, stage, there] = *round;
  const auto slices = slices_of<Slice>(region.elements, region.dtype, island.members.size());
  const std::uint64_t own = slices[island.own].size;
  std::vector<FabricTransfer> transfers;
  DeviceAddress part = at.reduced;
  for (std::size_t mate = 0; mate < slices.size(); ++mate) {
    if (mate == island.own) continue;
    add_transfer(transfers, Way::kSend, mate, at.sums + slices[mate].first, slices[mate].size);
    add_transfer(transfers, Way::kReceive, mate, part, own);
    part += own;
  }
  SWARMLINE_CHECK(part <= at.reduced + region.elements * size_bytes(region.dtype));
  exchange(round, std::move(transfers), [this](const RoundPtr& r) {
    run(
        r, [this](Round& summed) { return add(summed); },
        [this](const RoundPtr& summed) { gather(summed); });
  });
}

Result<void> IslandRounds::add(Round& round) {
  const auto& [key, island, region, at, stage, there] = round;
  const auto slices = slices_of<Slice>(region.elements, region.dtype, island.members.size());
  const auto [first, size] = slices[island.own];
  const std::uint64_t elements = size / size_bytes(region.dtype);
  if (elements == 0) return {};
  const DeviceAddress sum = at.island + first;
  const auto part_of = [&](std::size_t rank) {
    if (rank == island.own) return at.sums + first;
    return at.reduced + (rank < island.own ? rank : rank - 1) * size;
  };
  DeviceGradients& gradients = *context_.state.gradients();
  for (std::size_t rank = 1; rank < slices.size(); ++rank)
    SWARMLINE_TRY(gradients.add(rank == 1 ? part_of(0) : sum, part_of(rank), sum, elements));
  // The parts are done with.
  return island.is_all ? context_.state.device()->copy(at.reduced + first, sum, size)
                       : Result<void>();
}

void IslandRounds::gather(const RoundPtr& round) {
  const auto& [key, island, region, at, stage, there] = *round;
  const auto slices = slices_of<Slice>(region.elements, region.dtype, island.members.size());
  const Slice& own = slices[island.own];
  const DeviceAddress whole = island.is_all ? at.reduced : at.island;
  std::vector<FabricTransfer> transfers;
  for (std::size_t mate = 0; mate < slices.size(); ++mate) {
    if (mate == island.own) continue;
    if (island.is_all || mate == 0)
      add_transfer(transfers, Way::kSend, mate, at.island + own.first, own.size);
    if (island.is_all || round->speaks())
      add_transfer(transfers, Way::kReceive, mate, whole + slices[mate].first, slices[mate].size);
  }
  exchange(round, std::move(transfers), [this](const RoundPtr& r) { gathered(r); });
}

void IslandRounds::gathered(const RoundPtr& round) {
  if (round->island.is_all) return averaged(round);
  if (round->speaks()) {
    round->stage = Stage::kSummed;
    return hooks_.summed(round->key);
  }
  round->stage = Stage::kAwaited;
  if (round->average_is_there) take(round);
}

// ---- The average goes back ----------------------------------------------------------------------

void IslandRounds::give(const RoundKey& key) {
  const auto running = rounds_.find(key.group);
  if (running == rounds_.end() || running->second->key != key ||
      running->second->stage != Stage::kSummed)
    return;
  const RoundPtr round = running->second;
  const auto& members = round->island.members;
  wire::FabricWord word;
  *word.mutable_phase() = to_wire(key.phase);
  word.set_group(key.group.value);
  word.set_meeting(round->island.meeting);
  word.set_sum_is_here(true);
  for (std::size_t mate = 1; mate < members.size(); ++mate)
    context_.links.send(members[mate], make_frame(MessageKind::kFabricWord, word));
  take(round);
}

// A slice to each of those who are spoken for.
void IslandRounds::take(const RoundPtr& round) {
  round->stage = Stage::kGiven;
  const auto& [key, island, region, at, stage, there] = *round;
  const std::size_t mates = island.members.size() - 1;
  const auto slices = slices_of<Slice>(region.elements, region.dtype, mates);
  std::vector<FabricTransfer> transfers;
  for (std::size_t mate = 1; mate <= mates; ++mate) {
    const DeviceAddress memory = at.reduced + slices[mate - 1].first;
    if (round->speaks()) add_transfer(transfers, Way::kSend, mate, memory, slices[mate - 1].size);
    if (mate == island.own)
      add_transfer(transfers, Way::kReceive, 0, memory, slices[mate - 1].size);
  }
  exchange(round, std::move(transfers), [this](const RoundPtr& r) { share(r); });
}

// From each to the others.
void IslandRounds::share(const RoundPtr& round) {
  const auto& [key, island, region, at, stage, there] = *round;
  const std::size_t mates = island.members.size() - 1;
  const auto slices = slices_of<Slice>(region.elements, region.dtype, mates);
  std::vector<FabricTransfer> transfers;
  for (std::size_t mate = 1; mate <= mates && !round->speaks(); ++mate) {
    if (mate == island.own) continue;
    const Slice &own = slices[island.own - 1], &theirs = slices[mate - 1];
    add_transfer(transfers, Way::kSend, mate, at.reduced + own.first, own.size);
    add_transfer(transfers, Way::kReceive, mate, at.reduced + theirs.first, theirs.size);
  }
  exchange(round, std::move(transfers), [this](const RoundPtr& r) { averaged(r); });
}

void IslandRounds::averaged(const RoundPtr& round) {
  SWARMLINE_MARK("island_rounds.averaged");
  round->stage = Stage::kOver;
  const RoundKey key = round->key;
  const bool had_it = round->speaks() && !round->island.is_all;
  rounds_.erase(key.group);
  if (!had_it) hooks_.averaged(key);
}

// ---- Ends ---------------------------------------------------------------------------------------

void IslandRounds::fail(const RoundPtr& round, const Error& error) {
  SWARMLINE_MARK("island_rounds.failed");
  const RoundKey key = round->key;
  drop([&](const RoundKey& other) { return other == key; });
  hooks_.failed(key, error);
}

void IslandRounds::drop(const std::function<bool(const RoundKey&)>& which) {
  for (auto round = rounds_.begin(); round != rounds_.end();) {
    if (!which(round->second->key)) {
      ++round;
      continue;
    }
    const auto met = meetings_.find(round->first);
    if (met != meetings_.end() && met->second.number == round->second->island.meeting)
      met->second.group.reset();
    round = rounds_.erase(round);
  }
}

void IslandRounds::on_peer_lost(const Seat& lost) {
  std::erase_if(early_, [&](const auto& of_one) { return is_over_with(of_one.first, lost); });
}

void IslandRounds::retire(std::uint64_t step) {
  first_open_step_ = std::max(first_open_step_, step + 1);
  take_early([&](const wire::FabricWord& word) {
    return from_wire(word.phase()).step < first_open_step_;
  });
}

std::vector<RoundKey> IslandRounds::waiting_for(const Seat& peer) const {
  std::vector<RoundKey> keys;
  for (const auto& [group, round] : rounds_)
    if (std::ranges::find(round->island.members, peer) != round->island.members.end())
      keys.push_back(round->key);
  return keys;
}

void IslandRounds::silence() {
  guard_.drop_callbacks();
  meetings_.clear();
}

}  // namespace swarmline
