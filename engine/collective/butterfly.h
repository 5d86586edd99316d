// Butterfly all-reduce among the peers of a stage: sums, with the same bits at every member.
//
// Rank r reduces slice r, elements [bounds[r], bounds[r+1]). Scatter: every member sends its part
// of slice r to r, encoded with the codec of that link. Rank r adds the parts in rank order
// whatever order they arrive in (its own part as it is, the others as decoded). Gather: it encodes
// the reduced chunk once and sends those bytes to all; it takes the decoded form itself, so every
// member ends with the same bits. Slices travel in chunks; scatter, sum and gather overlap. One
// member alone: the output is a copy of the input, no codec.
// Error feedback, where a residual is given: what a codec lost here (of the parts sent, and of the
// own slice's sum) is added in the next round. With topk, the own part of the own slice goes
// through the codec as the others' do, so that the sum stays sparse. Nothing is lost on the way:
// output + all members' next residuals = inputs + all current residuals, but for rounding.
// A member's input may itself be a sum on its way (engine/collective/island.h): then it comes chunk
// by chunk, in any order. Or its parts have been encoded elsewhere, where a device has the values:
// then only the own slice of input and residual are read or written here.
//   Ownership: the residual is borrowed as input and output are (all_reduce.h): `current` is read
//              only, `next` is complete when the round is done and nothing is left to send.
//   Thread:    one at a time, as all_reduce.h says.
//   Errors:    as all_reduce.h says.
//   Bounds:    a sender is at most window_chunks(ranks) ahead of what the reducer has returned, so
//              at most that times (ranks - 1) arrived chunks wait for their turn at a reducer, and
//              as many encoded chunks a sender; at most kRanksMax members.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <variant>
#include <vector>

#include "base/bytes.h"
#include "base/dtype.h"
#include "base/limits.h"
#include "base/result.h"
#include "compression/codec.h"
#include "engine/collective/all_reduce.h"
#include "engine/collective/slice_chunks.h"

namespace swarmline {

struct ButterflySpec {
  std::uint32_t rank = 0;
  std::uint32_t ranks = 1;
  std::uint64_t elements = 0;
  DType dtype = DType::kF32;          // kF32 | kF64
  std::vector<std::uint64_t> bounds;  // ranks + 1 elements, ascending, 0 .. elements: slices.h
  std::vector<CodecSpec> scatter;     // by receiving rank; own entry unused
  CodecSpec gather;                   // one for the round
  // Rounds stochastically where a codec can: seed and stream[0], stream[1] below 2^16 name the
  // round; the rest is filled in.
  std::optional<kernels::StochasticKey> key;
  std::size_t chunk_bytes =
      Limits::reduce_chunk_bytes;  // of unencoded elements; the same for all members
};

// The chunks of all slices, and what a part that is sent, or a sum, draws its roundings by.
SliceChunks chunks_of(const ButterflySpec& spec);
std::optional<kernels::StochasticKey> draws_of(const ButterflySpec& spec, ReducePart part,
                                               const SliceChunks::Place& at);

class ButterflyAllReduce final : public AllReduce {
 public:
  using OnSum =
      std::function<void(const SliceChunks::Place& at, const std::vector<SharedBytes>& wire)>;

  static constexpr std::uint32_t kWindowChunksMin = 16, kWindowChunksMax = 32;
  // What all of a member's windows together have, where that is within the bounds above: a link of
  // a long round trip is as fast as its window is large, and several links share a line.
  static constexpr std::uint32_t kWindowsChunks = 64;
  static constexpr std::uint32_t window_chunks(std::uint32_t ranks) {
    return std::clamp(kWindowsChunks / std::max(1U, ranks - 1), kWindowChunksMin, kWindowChunksMax);
  }
  // Two stages that share an embedding.
  static constexpr std::uint32_t kRanksMax = 2 * Limits::stage_peers_max;

  // kIncompatible when the spec does not fit itself or the buffers.
  static Result<void> check_spec(const ButterflySpec& spec, BytesView input, BytesView output);

  // The spec must pass check_spec (CHECKed). The residual has two empty parts, for none, or the
  // input's elements and dtype; current and next do not overlap.
  ButterflyAllReduce(ButterflySpec spec, BytesView input, MutableBytes output,
                     Residual residual = {});

  // Before anything else: on_sum() hears of each sum that is complete here, with its wire buffer.
  void watch_sums(OnSum on_sum) { on_sum_ = std::move(on_sum); }
  // Before anything else: no chunk of the input is there yet.
  void await_input();
  // Before anything else: what is sent of the input, encoded as this would, by number; the own
  // slice's are empty.
  void take_parts(std::vector<SharedBytes> parts);
  // That chunk of the input is there: what follows. CHECKed: it is one, and was not before.
  std::vector<ChunkSend> on_input(const SliceChunks::Place& at);

  bool send_more(const std::function<void(ChunkSend)>& send) override;
  Result<std::vector<ChunkSend>> on_chunk(std::uint32_t from, ReducePart part, std::uint32_t chunk,
                                          const SharedBytes& wire) override;
  bool has_taken(std::uint32_t from, ReducePart part, std::uint32_t chunk) const override;
  bool done() const override { return progress_.chunks_done == progress_.chunks_total; }
  Progress progress() const override { return progress_; }
  bool deals_with(std::uint32_t rank) const override { return rank < spec_.ranks; }
  const SliceChunks& chunks() const { return chunks_; }

 private:
  // A part that waits: as it came, or decoded.
  using Part = std::variant<PlainValues, Buffer>;
  // A chunk of the own slice on its way to being a sum.
  struct Sum {
    std::uint32_t next_rank = 0;            // parts of ranks below are in `output`
    std::uint32_t arrived = 0;              // parts of others
    std::map<std::uint32_t, Part> waiting;  // by rank; of the own one what is not in the input
  };

  static ButterflySpec checked(ButterflySpec spec, BytesView input, MutableBytes output);
  bool input_is_here(std::uint32_t slice, std::uint32_t chunk) const;
  bool all_parts_here(std::uint32_t chunk, const Sum& sum) const;
  void encode_own_part(std::uint32_t chunk, Sum& sum);
  BytesView input_chunk(std::uint32_t rank, std::uint32_t chunk) const;
  Residual residual_chunk(std::uint32_t rank, std::uint32_t chunk) const;
  std::vector<SharedBytes> encode_part(std::uint32_t slice, std::uint32_t chunk);
  std::vector<SharedBytes> encode_sum(std::uint32_t chunk, BytesView values) const;
  void finish_alone();
  MutableBytes output_chunk(std::uint32_t rank, std::uint32_t chunk);
  Result<void> check_header(ReducePart part, std::uint64_t elements, BytesView wire) const;
  bool may_send(std::uint32_t to) const;
  ChunkSend next_scatter(std::uint32_t to);
  Result<void> take_part(std::uint32_t from, std::uint32_t chunk, const SharedBytes& wire,
                         std::vector<ChunkSend>& sends);
  Result<void> take_sum(std::uint32_t from, std::uint32_t chunk, BytesView wire,
                        std::vector<ChunkSend>& sends);
  Sum& sum_of(std::uint32_t chunk);
  Result<void> add_wire(std::uint32_t chunk, Sum& sum, BytesView wire);  // of rank sum.next_rank
  // Ranks from the next one on, up to the first whose part is missing.
  std::uint32_t ranks_in_turn(std::uint32_t chunk, const Sum& sum) const;
  void add_in_turn(std::uint32_t chunk, Sum& sum, MutableBytes target, MutableBytes copy);
  std::vector<SharedBytes> finish_sum(std::uint32_t chunk, Sum& sum);
  void finish_chunk(std::uint32_t chunk, Sum& sum, std::vector<ChunkSend>& sends);

  ButterflySpec spec_;
  SliceChunks chunks_;
  BytesView input_;
  MutableBytes output_;
  Residual residual_;
  bool sparse_ = false;   // the own part goes through topk
  bool streams_ = false;  // the output is more than caches hold: what lands there goes past them
  std::vector<std::uint32_t> sent_;              // by rank: scatter chunks handed out
  std::vector<std::uint32_t> returned_;          // by rank: sums that came back
  std::vector<std::vector<bool>> scatter_seen_;  // by rank, chunk of the own slice
  std::vector<std::vector<bool>> gather_seen_;   // by rank, chunk of that rank's slice
  std::map<std::uint32_t, Sum> sums_;            // unfinished chunks of the own slice
  std::uint32_t reduced_ = 0;                    // finished chunks of the own slice
  std::vector<bool> input_here_;                 // by number; empty: all of it is
  std::vector<SharedBytes> parts_;               // by number; empty: they are encoded here
  OnSum on_sum_;
  Progress progress_;
};

}  // namespace swarmline
