#include "engine/collective/butterfly.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/units.h"
#include "engine/collective/typed_sums.h"
#include "kernels/kernels.h"

namespace swarmline {
namespace {

// The third word of a stochastic key, above any rank and any boundary (below 2^16).
constexpr std::uint32_t kScatterDraws = 1U << 30;
constexpr std::uint32_t kGatherDraws = 2U << 30;

// More than a core's caches hold.
constexpr std::size_t kStreamedBytesMin = 4 * kMiB;
static_assert(kWireTileElements % kAddedElements == 0);

Result<void> unfit(std::string what) {
  return fail(ErrorCode::kIncompatible, "all-reduce: " + std::move(what));
}

void copy(BytesView from, MutableBytes to) {
  SWARMLINE_CHECK(from.size() == to.size());
  if (!from.empty()) std::memcpy(to.data(), from.data(), from.size());
}

bool overlap(BytesView a, BytesView b) {
  return !a.empty() && !b.empty() && a.data() < b.data() + b.size() &&
         b.data() < a.data() + a.size();
}

}  // namespace

// Every part and every sum of a run has its own draws.
std::optional<kernels::StochasticKey> draws_of(const ButterflySpec& spec, ReducePart part,
                                               const SliceChunks::Place& at) {
  if (!spec.key) return std::nullopt;
  constexpr std::uint64_t kTile = kWireTileElements;
  kernels::StochasticKey key = *spec.key;
  key.stream[1] = key.stream[1] << 16 | at.slice;
  key.stream[2] = part == ReducePart::kScatter ? kScatterDraws | spec.rank : kGatherDraws;
  const std::uint64_t elements = spec.chunk_bytes / size_bytes(spec.dtype);
  key.first_element = at.chunk * ((elements + kTile - 1) / kTile * kTile);
  return key;
}

SliceChunks chunks_of(const ButterflySpec& spec) {
  return {spec.bounds, spec.chunk_bytes / size_bytes(spec.dtype)};
}

Result<void> ButterflyAllReduce::check_spec(const ButterflySpec& spec, BytesView input,
                                            BytesView output) {
  if (spec.dtype != DType::kF32 && spec.dtype != DType::kF64) {
    return unfit("only fp32 and fp64 are reduced");
  }
  if (spec.ranks < 1 || spec.ranks > kRanksMax || spec.rank >= spec.ranks) {
    return unfit(fmt::format("rank {} of {} (at most {})", spec.rank, spec.ranks, kRanksMax));
  }
  if (spec.bounds.size() != spec.ranks + 1U || spec.scatter.size() != spec.ranks) {
    return unfit(fmt::format("{} bounds and {} scatter codecs for {} members", spec.bounds.size(),
                             spec.scatter.size(), spec.ranks));
  }
  if (spec.bounds.front() != 0 || spec.bounds.back() != spec.elements ||
      !std::is_sorted(spec.bounds.begin(), spec.bounds.end())) {
    return unfit(fmt::format("the slices do not divide {} elements", spec.elements));
  }
  const std::size_t width = size_bytes(spec.dtype);
  if (spec.elements > UINT64_MAX / width || input.size() != spec.elements * width ||
      output.size() != input.size() || overlap(input, output)) {
    return unfit(fmt::format("buffers of {} and {} bytes for {} elements", input.size(),
                             output.size(), spec.elements));
  }
  if (spec.chunk_bytes < width ||
      spec.elements / (spec.chunk_bytes / width) >= UINT32_MAX - kRanksMax) {
    return unfit(fmt::format("chunks of {} bytes", spec.chunk_bytes));
  }
  return {};
}

ButterflySpec ButterflyAllReduce::checked(ButterflySpec spec, BytesView input,
                                          MutableBytes output) {
  const auto fits = check_spec(spec, input, output);
  SWARMLINE_CHECK_MSG(fits, fits.error().what);
  return spec;
}

ButterflyAllReduce::ButterflyAllReduce(ButterflySpec spec, BytesView input, MutableBytes output,
                                       Residual residual)
    : spec_(checked(std::move(spec), input, output)),
      chunks_(chunks_of(spec_)),
      input_(input),
      output_(output),
      residual_(residual) {
  const bool feedback = !residual_.current.empty();
  SWARMLINE_CHECK(residual_.current.size() == residual_.next.size() &&
                  (!feedback || residual_.next.size() == input.size()) &&
                  !overlap(residual_.current, residual_.next));
  sparse_ = feedback && spec_.scatter[spec_.rank].kind == CodecKind::kTopK;
  streams_ = output.size() >= kStreamedBytesMin;
  sent_.assign(spec_.ranks, 0);
  returned_.assign(spec_.ranks, 0);
  for (std::uint32_t r = 0; r < spec_.ranks; ++r) {
    scatter_seen_.emplace_back(r == spec_.rank ? 0 : chunks_.in(spec_.rank), false);
    gather_seen_.emplace_back(r == spec_.rank ? 0 : chunks_.in(r), false);
    progress_.chunks_total += chunks_.in(r);
  }
}

// Geometry

BytesView ButterflyAllReduce::input_chunk(std::uint32_t rank, std::uint32_t chunk) const {
  const std::size_t width = size_bytes(spec_.dtype);
  return input_.subspan(chunks_.first({rank, chunk}) * width,
                        chunks_.elements({rank, chunk}) * width);
}

MutableBytes ButterflyAllReduce::output_chunk(std::uint32_t rank, std::uint32_t chunk) {
  const std::size_t width = size_bytes(spec_.dtype);
  return output_.subspan(chunks_.first({rank, chunk}) * width,
                         chunks_.elements({rank, chunk}) * width);
}

Residual ButterflyAllReduce::residual_chunk(std::uint32_t rank, std::uint32_t chunk) const {
  const std::size_t width = size_bytes(spec_.dtype);
  const std::size_t at = chunks_.first({rank, chunk}) * width;
  const std::size_t bytes = chunks_.elements({rank, chunk}) * width;
  return {.current = residual_.current.subspan(at, bytes),
          .next = residual_.next.subspan(at, bytes)};
}

std::vector<SharedBytes> ButterflyAllReduce::encode_part(std::uint32_t slice, std::uint32_t chunk) {
  if (!parts_.empty() && slice != spec_.rank)
    return {std::exchange(parts_[chunks_.number({slice, chunk})], {})};
  const auto key = draws_of(spec_, ReducePart::kScatter, {slice, chunk});
  const kernels::StochasticKey* const draws = key ? &*key : nullptr;
  const BytesView values = input_chunk(slice, chunk);
  if (residual_.current.empty())
    return encode_in_parts(spec_.scatter[slice], values, spec_.dtype, draws);
  return {SharedBytes(encode_with_feedback(spec_.scatter[slice], values, spec_.dtype,
                                           residual_chunk(slice, chunk), draws))};
}

// A sparse own part has used up its residual: only what the sum's codec loses is added to it.
std::vector<SharedBytes> ButterflyAllReduce::encode_sum(std::uint32_t chunk,
                                                        BytesView values) const {
  const auto key = draws_of(spec_, ReducePart::kGather, {spec_.rank, chunk});
  const kernels::StochasticKey* const draws = key ? &*key : nullptr;
  if (residual_.current.empty()) return encode_in_parts(spec_.gather, values, spec_.dtype, draws);
  const Residual own = residual_chunk(spec_.rank, chunk);
  if (!sparse_)
    return {SharedBytes(encode_with_feedback(spec_.gather, values, spec_.dtype, own, draws))};
  const Buffer nothing = Buffer::zeroed(values.size());
  Buffer lost(values.size());
  Buffer wire = encode_with_feedback(spec_.gather, values, spec_.dtype,
                                     {.current = nothing.bytes(), .next = lost.bytes()}, draws);
  add_into(spec_.dtype, lost.bytes(), own.next);
  return {SharedBytes(std::move(wire))};
}

// Scatter

void ButterflyAllReduce::finish_alone() {
  copy(input_, output_);
  if (!residual_.current.empty()) {
    add_into(spec_.dtype, residual_.current, output_);
    std::memset(residual_.next.data(), 0, residual_.next.size());
  }
  progress_.chunks_done = progress_.chunks_total;
}

// A chunk for each receiver at a time, so that all reducers start at once. From the next rank on,
// so that not everybody fills the first one's link.
bool ButterflyAllReduce::send_more(const std::function<void(ChunkSend)>& send) {
  if (spec_.ranks == 1) {
    if (!done()) finish_alone();
    return false;
  }
  bool more = false;
  for (std::uint32_t step = 1; step < spec_.ranks; ++step) {
    const std::uint32_t to = (spec_.rank + step) % spec_.ranks;
    if (may_send(to)) send(next_scatter(to));
    more = more || may_send(to);
  }
  return more;
}

bool ButterflyAllReduce::may_send(std::uint32_t to) const {
  return sent_[to] < std::min(chunks_.in(to), returned_[to] + window_chunks(spec_.ranks)) &&
         input_is_here(to, sent_[to]);
}

ChunkSend ButterflyAllReduce::next_scatter(std::uint32_t to) {
  const std::uint32_t chunk = sent_[to]++;
  ChunkSend send{to, ReducePart::kScatter, chunk, encode_part(to, chunk)};
  progress_.bytes_to_send += send.bytes();
  return send;
}

Result<std::vector<ChunkSend>> ButterflyAllReduce::on_chunk(std::uint32_t from, ReducePart part,
                                                            std::uint32_t chunk,
                                                            const SharedBytes& wire) {
  const bool scatter = part == ReducePart::kScatter;
  if (from >= spec_.ranks || from == spec_.rank ||
      chunk >= chunks_.in(scatter ? spec_.rank : from)) {
    return fail(ErrorCode::kCorrupt, fmt::format("all-reduce: chunk {} of rank {} does not exist "
                                                 "({} members)",
                                                 chunk, from, spec_.ranks));
  }
  std::vector<bool>& seen = (scatter ? scatter_seen_ : gather_seen_)[from];
  if (seen[chunk]) return std::vector<ChunkSend>{};
  // Nobody returns a sum whose part it was not sent, or runs ahead of the window.
  const std::uint64_t limit =
      scatter ? std::uint64_t{reduced_} + window_chunks(spec_.ranks) : sent_[from];
  if (chunk >= limit) {
    return fail(ErrorCode::kCorrupt, fmt::format("all-reduce: chunk {} of rank {} came before its "
                                                 "turn (below {})",
                                                 chunk, from, limit));
  }
  SWARMLINE_TRY(
      check_header(part, chunks_.elements({scatter ? spec_.rank : from, chunk}), wire.view()));
  std::vector<ChunkSend> sends;
  SWARMLINE_TRY(scatter ? take_part(from, chunk, wire, sends)
                        : take_sum(from, chunk, wire.view(), sends));
  if (!scatter && on_sum_) on_sum_({from, chunk}, {wire});
  seen[chunk] = true;
  progress_.bytes_received += wire.size();
  return sends;
}

bool ButterflyAllReduce::has_taken(std::uint32_t from, ReducePart part, std::uint32_t chunk) const {
  const auto& seen = part == ReducePart::kScatter ? scatter_seen_ : gather_seen_;
  return from < seen.size() && chunk < seen[from].size() && seen[from][chunk];
}

Result<void> ButterflyAllReduce::check_header(ReducePart part, std::uint64_t elements,
                                              BytesView wire) const {
  const auto header = read_wire_header(wire);
  if (!header) return std::unexpected(header.error());
  if (header->elements != elements || header->source != spec_.dtype) {
    return unfit(fmt::format("a chunk of {} elements came with {}, or of another dtype", elements,
                             header->elements));
  }
  // Members that decode another codec than the others would end with other bits. Whether there are
  // checksums is its sender's choice.
  CodecSpec codec = spec_.gather;
  codec.checksums = header->codec.checksums;
  if (part == ReducePart::kGather && header->codec != codec) {
    return unfit(fmt::format("a sum came as {}, the round's codec is {}", to_string(header->codec),
                             to_string(spec_.gather)));
  }
  return {};
}

// Reduction

ButterflyAllReduce::Sum& ButterflyAllReduce::sum_of(std::uint32_t chunk) {
  const auto [at, is_new] = sums_.try_emplace(chunk);
  if (is_new && sparse_ && input_is_here(spec_.rank, chunk)) encode_own_part(chunk, at->second);
  return at->second;
}

void ButterflyAllReduce::encode_own_part(std::uint32_t chunk, Sum& sum) {
  Buffer own(output_chunk(spec_.rank, chunk).size());
  const auto decoded =
      decode(encode_part(spec_.rank, chunk).front().view(), spec_.dtype, own.bytes());
  SWARMLINE_CHECK_MSG(decoded, decoded.error().what);
  sum.waiting.emplace(spec_.rank, std::move(own));
}

// ---- An input that comes

void ButterflyAllReduce::await_input() {
  SWARMLINE_CHECK(spec_.ranks > 1);
  input_here_.assign(chunks_.total(), false);
}

void ButterflyAllReduce::take_parts(std::vector<SharedBytes> parts) {
  SWARMLINE_CHECK(spec_.ranks > 1 && input_here_.empty() && parts.size() == chunks_.total());
  parts_ = std::move(parts);
}

bool ButterflyAllReduce::input_is_here(std::uint32_t slice, std::uint32_t chunk) const {
  return input_here_.empty() || input_here_[chunks_.number({slice, chunk})];
}

std::vector<ChunkSend> ButterflyAllReduce::on_input(const SliceChunks::Place& at) {
  SWARMLINE_CHECK(!input_is_here(at.slice, at.chunk));
  input_here_[chunks_.number(at)] = true;
  std::vector<ChunkSend> sends;
  if (at.slice != spec_.rank) {
    while (may_send(at.slice)) sends.push_back(next_scatter(at.slice));
  } else if (const auto sum = sums_.find(at.chunk); sum != sums_.end()) {
    if (sparse_) encode_own_part(at.chunk, sum->second);
    if (all_parts_here(at.chunk, sum->second)) finish_chunk(at.chunk, sum->second, sends);
  }
  return sends;
}

bool ButterflyAllReduce::all_parts_here(std::uint32_t chunk, const Sum& sum) const {
  return sum.arrived + 1 == spec_.ranks && input_is_here(spec_.rank, chunk);
}

// Values as they are wait until all are there, and are added in one pass. Others are decoded where
// they are added, if it is their turn.
Result<void> ButterflyAllReduce::take_part(std::uint32_t from, std::uint32_t chunk,
                                           const SharedBytes& wire, std::vector<ChunkSend>& sends) {
  const MutableBytes target = output_chunk(spec_.rank, chunk);
  Sum& sum = sum_of(chunk);
  if (read_wire_header(wire.view())->codec.kind == CodecKind::kNone) {
    auto values = PlainValues::of(wire, spec_.dtype, target.size());
    if (!values) return std::unexpected(values.error());
    sum.waiting.emplace(from, std::move(*values));
    ++progress_.chunks_waiting;
  } else if (add_in_turn(chunk, sum, target, {}); from == sum.next_rank) {
    SWARMLINE_TRY(add_wire(chunk, sum, wire.view()));
    add_in_turn(chunk, sum, target, {});
  } else {
    Buffer values(target.size());
    SWARMLINE_TRY(decode(wire.view(), spec_.dtype, values.bytes()));
    sum.waiting.emplace(from, std::move(values));
    ++progress_.chunks_waiting;
  }
  ++sum.arrived;
  if (all_parts_here(chunk, sum)) finish_chunk(chunk, sum, sends);
  return {};
}

// The first part is the sum so far: if it does not decode, nothing is lost but garbage.
Result<void> ButterflyAllReduce::add_wire(std::uint32_t chunk, Sum& sum, BytesView wire) {
  const MutableBytes target = output_chunk(spec_.rank, chunk);
  SWARMLINE_TRY(sum.next_rank == 0 ? decode(wire, spec_.dtype, target)
                                   : decode_add(wire, spec_.dtype, target));
  ++sum.next_rank;
  return {};
}

std::uint32_t ButterflyAllReduce::ranks_in_turn(std::uint32_t chunk, const Sum& sum) const {
  const bool own_is_here = input_is_here(spec_.rank, chunk);
  std::uint32_t end = sum.next_rank;
  while (end < spec_.ranks && ((end == spec_.rank && own_is_here) || sum.waiting.contains(end)))
    ++end;
  return end - sum.next_rank;
}

// Sums them in `target`, where the sum so far is, and streams what came out to `copy`, if there is
// one.
void ButterflyAllReduce::add_in_turn(std::uint32_t chunk, Sum& sum, MutableBytes target,
                                     MutableBytes copy) {
  const std::uint32_t count = ranks_in_turn(chunk, sum);
  if (count == 0) return;
  const std::size_t width = size_bytes(spec_.dtype);
  const auto values_of = [&](std::uint32_t rank, std::uint64_t first, std::size_t n) {
    const auto waiting = sum.waiting.find(rank);
    if (waiting == sum.waiting.end())
      return input_chunk(spec_.rank, chunk).subspan(first * width, n * width);
    if (const auto* plain = std::get_if<PlainValues>(&waiting->second))
      return plain->values(first, n);
    return BytesView(std::get<Buffer>(waiting->second).bytes()).subspan(first * width, n * width);
  };
  const std::uint64_t elements = chunks_.elements({spec_.rank, chunk});
  for (std::uint64_t first = 0; first < elements; first += kAddedElements) {
    const std::size_t n = std::min<std::uint64_t>(kAddedElements, elements - first);
    const MutableBytes to = target.subspan(first * width, n * width);
    std::uint32_t rank = sum.next_rank;
    const std::uint32_t end = rank + count;
    if (rank == 0 && count == 1) {
      swarmline::copy(values_of(rank++, first, n), to);
    } else if (rank == 0) {
      add(spec_.dtype, values_of(0, first, n), values_of(1, first, n), to);
      rank = 2;
    }
    for (; rank < end; ++rank) add_into(spec_.dtype, values_of(rank, first, n), to);
    if (!copy.empty()) kernels::stream_copy(to.data(), copy.data() + first * width, to.size());
  }
  for (const std::uint32_t end = sum.next_rank + count; sum.next_rank < end; ++sum.next_rank) {
    if (sum.waiting.erase(sum.next_rank) > 0 && sum.next_rank != spec_.rank)
      --progress_.chunks_waiting;
  }
}

// The sum in `output`, and encoded.
std::vector<SharedBytes> ButterflyAllReduce::finish_sum(std::uint32_t chunk, Sum& sum) {
  const MutableBytes values = output_chunk(spec_.rank, chunk);
  const bool as_it_is = spec_.gather.kind == CodecKind::kNone && residual_.current.empty();
  if (as_it_is && streams_ && sum.next_rank == 0) {
    // It leaves from where it was added, in the caches still.
    Buffer added(values.size());
    add_in_turn(chunk, sum, added.bytes(), values);
    return encode_in_parts(spec_.gather, SharedBytes(std::move(added)), spec_.dtype);
  }
  add_in_turn(chunk, sum, values, {});
  std::vector<SharedBytes> wire = encode_sum(chunk, values);
  if (!as_it_is) {
    const auto decoded = decode(wire.front().view(), spec_.dtype, values);
    SWARMLINE_CHECK_MSG(decoded, decoded.error().what);
  }
  return wire;
}

void ButterflyAllReduce::finish_chunk(std::uint32_t chunk, Sum& sum,
                                      std::vector<ChunkSend>& sends) {
  const std::vector<SharedBytes> wire = finish_sum(chunk, sum);
  SWARMLINE_CHECK(sum.next_rank == spec_.ranks);
  sums_.erase(chunk);
  if (on_sum_) on_sum_({spec_.rank, chunk}, wire);
  for (std::uint32_t step = 1; step < spec_.ranks; ++step) {
    const std::uint32_t to = (spec_.rank + step) % spec_.ranks;
    sends.push_back({to, ReducePart::kGather, chunk, wire});
    progress_.bytes_to_send += sends.back().bytes();
  }
  ++reduced_;
  ++progress_.chunks_done;
}

// Gather

Result<void> ButterflyAllReduce::take_sum(std::uint32_t from, std::uint32_t chunk, BytesView wire,
                                          std::vector<ChunkSend>& sends) {
  const MutableBytes values = output_chunk(from, chunk);
  SWARMLINE_TRY(streams_ ? stream_decode(wire, spec_.dtype, values)
                         : decode(wire, spec_.dtype, values));
  ++progress_.chunks_done;
  ++returned_[from];
  if (may_send(from)) sends.push_back(next_scatter(from));
  return {};
}

}  // namespace swarmline
