#include "engine/collective/island.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "engine/collective/typed_sums.h"

namespace swarmline {
namespace {

Result<void> unfit_island(std::string what) {
  return fail(ErrorCode::kIncompatible, "islands: " + std::move(what));
}

Error no_such_chunk(std::uint32_t chunk, std::uint32_t from) {
  return {ErrorCode::kCorrupt,
          fmt::format("islands: chunk {} of rank {} does not exist here", chunk, from)};
}

}  // namespace

std::vector<std::uint32_t> IslandRanks::speaking() const {
  std::vector<std::uint32_t> ranks;
  for (std::uint32_t of = 0; of < speakers.size(); ++of)
    if (speaks(of)) ranks.push_back(of);
  return ranks;
}

Result<void> check_islands(const IslandRanks& ranks, const ButterflySpec& between, BytesView input,
                           BytesView output) {
  const std::vector<std::uint32_t>& speakers = ranks.speakers;
  if (speakers.size() > ButterflyAllReduce::kRanksMax || ranks.rank >= speakers.size())
    return unfit_island(fmt::format("rank {} of {}", ranks.rank, speakers.size()));
  std::map<std::uint32_t, std::uint32_t> members;  // by who speaks for them
  for (std::uint32_t rank = 0; rank < speakers.size(); ++rank) {
    const std::uint32_t speaker = speakers[rank];
    if (speaker > rank || !ranks.speaks(speaker))
      return unfit_island(fmt::format("rank {} can't speak for rank {}", speaker, rank));
    if (++members[speaker] > kIslandMembersMax)
      return unfit_island(
          fmt::format("rank {} speaks for more than {}", speaker, kIslandMembersMax));
  }
  const std::vector<std::uint32_t> speaking = ranks.speaking();
  if (speaking.size() < 2 || speaking.size() != between.ranks || between.rank >= between.ranks ||
      speaking[between.rank] != speakers[ranks.rank])
    return unfit_island(fmt::format("{} speak, and an all-reduce of {} is between them",
                                    speaking.size(), between.ranks));
  return ButterflyAllReduce::check_spec(between, input, output);
}

std::unique_ptr<AllReduce> make_island_all_reduce(const IslandRanks& ranks,
                                                  const ButterflySpec& between, BytesView input,
                                                  MutableBytes output, Residual residual) {
  const auto fits = check_islands(ranks, between, input, output);
  SWARMLINE_CHECK_MSG(fits, fits.error().what);
  if (ranks.speaks(ranks.rank))
    return std::make_unique<IslandSpeaker>(ranks, between, input, output, residual);
  return std::make_unique<IslandMember>(ranks, between, input, output, residual);
}

// ---- Who speaks ---------------------------------------------------------------------------------

IslandSpeaker::IslandSpeaker(const IslandRanks& ranks, const ButterflySpec& between,
                             BytesView input, MutableBytes output, Residual residual)
    : dtype_(between.dtype),
      speaking_(ranks.speaking()),
      input_(input),
      sum_(std::ranges::count(ranks.speakers, ranks.rank) > 1 ? input.size() : 0),
      between_(between, sum_.size() > 0 ? BytesView(sum_.bytes()) : input, output, residual) {
  for (std::uint32_t rank = ranks.rank + 1; rank < ranks.speakers.size(); ++rank)
    if (ranks.speakers[rank] == ranks.rank)
      members_[rank].seen.assign(between_.chunks().total(), false);
  if (members_.empty()) return;
  between_.await_input();
  between_.watch_sums([this](const SliceChunks::Place& at, const std::vector<SharedBytes>& wire) {
    for (const auto& [rank, member] : members_)
      back_.push_back({rank, ReducePart::kGather, between_.chunks().number(at), wire});
  });
}

bool IslandSpeaker::send_more(const std::function<void(ChunkSend)>& send) {
  return between_.send_more([&](ChunkSend chunk) {
    chunk.to = speaking_[chunk.to];
    send(std::move(chunk));
  });
}

// What goes to others has their ranks in the group; what comes back to the island follows.
std::vector<ChunkSend> IslandSpeaker::in_group(std::vector<ChunkSend> sends) {
  for (ChunkSend& send : sends) send.to = speaking_[send.to];
  for (ChunkSend& sum : back_) sends.push_back(std::move(sum));
  back_.clear();
  return sends;
}

Result<std::vector<ChunkSend>> IslandSpeaker::on_chunk(std::uint32_t from, ReducePart part,
                                                       std::uint32_t chunk,
                                                       const SharedBytes& wire) {
  if (members_.contains(from)) {
    if (part != ReducePart::kScatter || chunk >= between_.chunks().total())
      return std::unexpected(no_such_chunk(chunk, from));
    return on_part(from, chunk, wire);
  }
  const auto speaker = std::ranges::find(speaking_, from);
  if (speaker == speaking_.end()) return std::unexpected(no_such_chunk(chunk, from));
  const auto rank = static_cast<std::uint32_t>(speaker - speaking_.begin());
  auto sends = between_.on_chunk(rank, part, chunk, wire);
  if (!sends) return sends;
  return in_group(std::move(*sends));
}

Result<std::vector<ChunkSend>> IslandSpeaker::on_part(std::uint32_t from, std::uint32_t chunk,
                                                      const SharedBytes& wire) {
  Member& member = members_.at(from);
  if (member.seen[chunk]) return std::vector<ChunkSend>{};
  const std::uint64_t limit = between_.progress().chunks_done + kIslandWindowChunks;
  if (member.taken >= limit)
    return fail(ErrorCode::kCorrupt,
                fmt::format("islands: more than {} chunks of rank {} came before their turn",
                            kIslandWindowChunks, from));
  const SliceChunks::Place at = between_.chunks().place(chunk);
  auto values = values_of(at, wire);
  if (!values) return std::unexpected(values.error());
  member.seen[chunk] = true;
  ++member.taken;
  received_ += wire.size();
  Parts& parts = parts_[chunk];
  parts.emplace(from, std::move(*values));
  ++waiting_;
  if (parts.size() < members_.size()) return std::vector<ChunkSend>{};
  add(at, parts);
  waiting_ -= parts.size();
  parts_.erase(chunk);
  return in_group(between_.on_input(at));
}

Result<PlainValues> IslandSpeaker::values_of(const SliceChunks::Place& at,
                                             const SharedBytes& wire) const {
  const auto header = read_wire_header(wire.view());
  if (!header) return std::unexpected(header.error());
  const std::uint64_t elements = between_.chunks().elements(at);
  if (header->codec.kind != CodecKind::kNone || header->elements != elements ||
      header->source != dtype_)
    return fail(ErrorCode::kIncompatible,
                fmt::format("islands: a chunk of {} elements came with {}, as {}", elements,
                            header->elements, to_string(header->codec)));
  return PlainValues::of(wire, dtype_, elements * size_bytes(dtype_));
}

// In rank order: whoever speaks has the lowest.
void IslandSpeaker::add(const SliceChunks::Place& at, const Parts& parts) {
  const std::size_t width = size_bytes(dtype_);
  const std::uint64_t offset = between_.chunks().first(at);
  const std::uint64_t elements = between_.chunks().elements(at);
  for (std::uint64_t first = 0; first < elements; first += kAddedElements) {
    const std::size_t n = std::min<std::uint64_t>(kAddedElements, elements - first);
    const std::size_t byte = (offset + first) * width;
    const MutableBytes to = sum_.bytes().subspan(byte, n * width);
    auto part = parts.begin();
    swarmline::add(dtype_, input_.subspan(byte, n * width), part->second.values(first, n), to);
    while (++part != parts.end()) add_into(dtype_, part->second.values(first, n), to);
  }
}

bool IslandSpeaker::has_taken(std::uint32_t from, ReducePart part, std::uint32_t chunk) const {
  if (const auto member = members_.find(from); member != members_.end())
    return part == ReducePart::kScatter && chunk < member->second.seen.size() &&
           member->second.seen[chunk];
  const auto speaker = std::ranges::find(speaking_, from);
  return speaker != speaking_.end() &&
         between_.has_taken(static_cast<std::uint32_t>(speaker - speaking_.begin()), part, chunk);
}

AllReduce::Progress IslandSpeaker::progress() const {
  Progress progress = between_.progress();
  progress.chunks_waiting += waiting_;
  progress.bytes_received += received_;
  return progress;
}

bool IslandSpeaker::deals_with(std::uint32_t rank) const {
  return members_.contains(rank) || std::ranges::find(speaking_, rank) != speaking_.end();
}

// ---- Who is spoken for --------------------------------------------------------------------------

IslandMember::IslandMember(const IslandRanks& ranks, const ButterflySpec& between, BytesView input,
                           MutableBytes output, Residual residual)
    : speaker_(ranks.speakers[ranks.rank]),
      dtype_(between.dtype),
      to_speaker_({.checksums = between.scatter[between.rank].checksums}),
      gather_(between.gather),
      chunks_(chunks_of(between)),
      input_(input),
      output_(output),
      residual_(residual) {
  sent_.assign(chunks_.total(), false);
  seen_.assign(chunks_.total(), false);
  if (!residual_.next.empty()) std::memset(residual_.next.data(), 0, residual_.next.size());
  chunks_.from(next_);
}

bool IslandMember::may_send() const {
  const std::uint32_t window = returned_ == 0 ? kIslandFirstChunks : kIslandWindowChunks;
  return sent_count_ < std::min(chunks_.total(), returned_ + window);
}

ChunkSend IslandMember::next() {
  const std::size_t width = size_bytes(dtype_);
  const std::uint32_t chunk = chunks_.number(next_);
  ChunkSend send{speaker_, ReducePart::kScatter, chunk,
                 encode_part(chunks_.first(next_) * width, chunks_.elements(next_) * width)};
  sent_[chunk] = true;
  ++sent_count_;
  chunks_.after(next_);
  return send;
}

std::vector<SharedBytes> IslandMember::encode_part(std::size_t first, std::size_t bytes) const {
  const BytesView values = input_.subspan(first, bytes);
  if (residual_.current.empty()) return encode_in_parts(to_speaker_, values, dtype_);
  Buffer with_residual(bytes);
  add(dtype_, values, residual_.current.subspan(first, bytes), with_residual.bytes());
  return encode_in_parts(to_speaker_, SharedBytes(std::move(with_residual)), dtype_);
}

bool IslandMember::send_more(const std::function<void(ChunkSend)>& send) {
  if (may_send()) send(next());
  return may_send();
}

Result<std::vector<ChunkSend>> IslandMember::on_chunk(std::uint32_t from, ReducePart part,
                                                      std::uint32_t chunk,
                                                      const SharedBytes& wire) {
  // Nobody returns a sum whose part it was not sent.
  if (from != speaker_ || part != ReducePart::kGather || chunk >= chunks_.total() || !sent_[chunk])
    return std::unexpected(no_such_chunk(chunk, from));
  if (seen_[chunk]) return std::vector<ChunkSend>{};
  SWARMLINE_TRY(take(chunks_.place(chunk), wire.view()));
  seen_[chunk] = true;
  ++returned_;
  received_ += wire.size();
  std::vector<ChunkSend> sends;
  // One for the one that came back, and one more while the window grows.
  for (int part_of_two = 0; part_of_two < 2 && may_send(); ++part_of_two) sends.push_back(next());
  return sends;
}

Result<void> IslandMember::take(const SliceChunks::Place& at, BytesView wire) {
  const auto header = read_wire_header(wire);
  if (!header) return std::unexpected(header.error());
  CodecSpec codec = gather_;
  codec.checksums = header->codec.checksums;
  const std::uint64_t elements = chunks_.elements(at);
  if (header->elements != elements || header->source != dtype_ || header->codec != codec)
    return unfit_island(fmt::format("a sum of {} elements came with {}, as {}", elements,
                                    header->elements, to_string(header->codec)));
  const std::size_t width = size_bytes(dtype_);
  return decode(wire, dtype_, output_.subspan(chunks_.first(at) * width, elements * width));
}

bool IslandMember::has_taken(std::uint32_t from, ReducePart part, std::uint32_t chunk) const {
  return from == speaker_ && part == ReducePart::kGather && chunk < seen_.size() && seen_[chunk];
}

AllReduce::Progress IslandMember::progress() const {
  return {.chunks_done = returned_,
          .chunks_total = chunks_.total(),
          .chunks_waiting = 0,
          .bytes_to_send = 0,
          .bytes_received = received_};
}

}  // namespace swarmline
