// All-reduce with islands: members on one host sum there first, one of them speaks for the island
// among those who speak for others, and what they end with goes back the same way. Sums, with the
// same bits at every member of the group.
//
// Whoever is spoken for sends its values as they are, chunk by chunk, to its speaker. The speaker
// adds a chunk's parts in rank order, its own first, once all are there; that chunk is then its
// input of the butterfly (butterfly.h) between those who speak. A sum that is complete at the
// speaker goes to its island in the wire buffer in which it came or leaves, so that all decode the
// same bytes. Summing inside, between and going back overlap. What a line between hosts carries is
// what one member sends, whatever the size of the island.
// Error feedback: whoever is spoken for adds its residual to what it sends and has none left; its
// speaker's is what the codec loses of the island's sum.
//   Ownership: as all_reduce.h says. A speaker has a buffer for the island's sum, as large as the
//              input.
//   Thread:    one at a time.
//   Errors:    as all_reduce.h says; kCorrupt, too, for chunks between members that have nothing to
//              do with each other.
//   Bounds:    kIslandMembersMax in an island. A member is at most kIslandWindowChunks ahead of the
//              sums that have come back, kIslandFirstChunks before the first one has; so at most
//              kIslandWindowChunks of each wait at its speaker.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "engine/collective/all_reduce.h"
#include "engine/collective/butterfly.h"
#include "engine/collective/slice_chunks.h"

namespace swarmline {

inline constexpr std::uint32_t kIslandMembersMax = 16;
// What the speaker's windows to the others have together.
inline constexpr std::uint32_t kIslandWindowChunks = ButterflyAllReduce::kWindowsChunks;
// A speaker that has not begun keeps them, as those of the others.
inline constexpr std::uint32_t kIslandFirstChunks = ButterflyAllReduce::kWindowChunksMax;

// Who speaks for whom, as one member sees it.
struct IslandRanks {
  std::uint32_t rank = 0;               // of this member, in the group
  std::vector<std::uint32_t> speakers;  // by rank: who speaks for it, itself or a lower rank

  bool speaks(std::size_t of) const { return speakers[of] == of; }
  // Those who speak, ascending: their ranks among each other.
  std::vector<std::uint32_t> speaking() const;
};

// kIncompatible when they do not fit each other or the buffers: at least two speak. `between` is of
// those who speak; its rank is that of this member's speaker, whose entry of `scatter` says whether
// what goes to it has checksums.
Result<void> check_islands(const IslandRanks& ranks, const ButterflySpec& between, BytesView input,
                           BytesView output);

// This member's side. check_islands must pass (CHECKed); residual as in butterfly.h.
std::unique_ptr<AllReduce> make_island_all_reduce(const IslandRanks& ranks,
                                                  const ButterflySpec& between, BytesView input,
                                                  MutableBytes output, Residual residual = {});

// Whoever speaks: of an island, or for itself alone.
class IslandSpeaker final : public AllReduce {
 public:
  IslandSpeaker(const IslandRanks& ranks, const ButterflySpec& between, BytesView input,
                MutableBytes output, Residual residual);

  bool send_more(const std::function<void(ChunkSend)>& send) override;
  Result<std::vector<ChunkSend>> on_chunk(std::uint32_t from, ReducePart part, std::uint32_t chunk,
                                          const SharedBytes& wire) override;
  bool has_taken(std::uint32_t from, ReducePart part, std::uint32_t chunk) const override;
  bool done() const override { return between_.done(); }
  Progress progress() const override;
  bool deals_with(std::uint32_t rank) const override;

 private:
  struct Member {  // that is spoken for
    std::vector<bool> seen;
    std::uint32_t taken = 0;  // chunks
  };
  // Parts of a chunk that wait for the others, by rank.
  using Parts = std::map<std::uint32_t, PlainValues>;

  Result<std::vector<ChunkSend>> on_part(std::uint32_t from, std::uint32_t chunk,
                                         const SharedBytes& wire);
  Result<PlainValues> values_of(const SliceChunks::Place& at, const SharedBytes& wire) const;
  void add(const SliceChunks::Place& at, const Parts& parts);
  std::vector<ChunkSend> in_group(std::vector<ChunkSend> sends);

  DType dtype_;
  std::vector<std::uint32_t> speaking_;      // ranks in the group, by rank among them
  std::map<std::uint32_t, Member> members_;  // of the island but itself, by rank in the group
  BytesView input_;
  Buffer sum_;  // of the island
  ButterflyAllReduce between_;
  std::map<std::uint32_t, Parts> parts_;  // by number of the chunk
  std::vector<ChunkSend> back_;           // sums, on their way out of the call that made them
  std::uint64_t waiting_ = 0, received_ = 0;
};

// Whoever is spoken for.
class IslandMember final : public AllReduce {
 public:
  IslandMember(const IslandRanks& ranks, const ButterflySpec& between, BytesView input,
               MutableBytes output, Residual residual);

  bool send_more(const std::function<void(ChunkSend)>& send) override;
  Result<std::vector<ChunkSend>> on_chunk(std::uint32_t from, ReducePart part, std::uint32_t chunk,
                                          const SharedBytes& wire) override;
  bool has_taken(std::uint32_t from, ReducePart part, std::uint32_t chunk) const override;
  bool done() const override { return returned_ == chunks_.total(); }
  Progress progress() const override;
  bool deals_with(std::uint32_t rank) const override { return rank == speaker_; }

 private:
  bool may_send() const;
  ChunkSend next();
  std::vector<SharedBytes> encode_part(std::size_t first, std::size_t bytes) const;
  Result<void> take(const SliceChunks::Place& at, BytesView wire);

  std::uint32_t speaker_;
  DType dtype_;
  CodecSpec to_speaker_, gather_;
  SliceChunks chunks_;
  BytesView input_;
  MutableBytes output_;
  Residual residual_;
  SliceChunks::Place next_;        // to send
  std::vector<bool> sent_, seen_;  // by number
  std::uint32_t sent_count_ = 0, returned_ = 0;
  std::uint64_t received_ = 0;
};

}  // namespace swarmline
