// An island's sum and its average past links: between the memories of its members' devices
// (engine/fabric/fabric.h). The values are those of an island over links: added in rank order.
//   What:      each member sums a slice of the region and sends that to who speaks, where the
//              island's sum is in DeviceArena::kIsland then. What the others average it to goes
//              back: a slice to each, from one to the next. An island that is all of its group ends
//              with the average at once, at each member.
//   Meeting:   members meet once, under the number that their seals have; a round that did not end
//              well ends the meeting here. Words of later meetings wait, until a newer one of their
//              group is sealed, their step is over or their sender's seat is; those of earlier ones
//              are dropped.
//   Ownership: what it is made with outlives it.
//   Thread:    control thread; what is added and copied on the device are jobs.
//   Errors:    on_word(): kCorrupt: no word of that meeting, from somebody who is not in it, or
//              more or larger words before their seal than a member has. A fabric that fails is
//              said to hooks.failed; errors of jobs end the peer.
//   Bounds:    one round of each group at a time; the fabric's own limits. Of each seat
//              kEarlyWordsOfOneMax words wait, of kFabricWordBytesMax meta and as much payload
//              each; of kEarlySeatsMax seats, and what one more says is dropped: it is not its
//              fault. Its island goes over links then.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "base/callback_guard.h"
#include "base/dtype.h"
#include "engine/collective/butterfly.h"
#include "engine/fabric/fabric.h"
#include "pipeline/averaging/stage_averager.h"
#include "pipeline/stage/common/stage_context.h"
#include "pipeline/stage/common/stage_jobs.h"

namespace swarmline {

class IslandRounds {
 public:
  static constexpr std::size_t kEarlyWordsOfOneMax = 32;
  static constexpr std::size_t kEarlySeatsMax = ButterflyAllReduce::kRanksMax;

  struct Island {
    std::vector<Seat> members;  // in rank order: the first one speaks
    std::uint32_t own = 0;      // rank within it
    FabricKind kind = FabricKind::kNone;
    std::uint64_t meeting = 0;
    bool is_all = false;  // nobody else averages
  };
  struct Region {
    std::uint64_t first = 0;  // bytes
    std::uint64_t elements = 0;
    DType dtype = DType::kF32;
  };
  struct Hooks {
    std::function<void(const RoundKey&)> summed;    // at who speaks, unless the island is all
    std::function<void(const RoundKey&)> averaged;  // here, in DeviceArena::kReduced
    std::function<void(const RoundKey&, const Error&)> failed;
  };

  IslandRounds(StageContext& context, StageJobs& jobs, Hooks hooks)
      : context_(context), jobs_(jobs), hooks_(std::move(hooks)) {}

  // Ends the group's rounds before. `step`: whose sums.
  void begin(const RoundKey& key, Island island, const Region& region, std::uint64_t step);
  // Where this member speaks in an unfinished round: the average is in its place on the device.
  void give(const RoundKey& key);
  Result<void> on_word(const Seat& from, const Frame& frame);
  void on_peer_lost(const Seat& lost);
  void retire(std::uint64_t step);  // it and those before it are over
  // Rounds that others wait for in vain end the meeting.
  void drop(const std::function<bool(const RoundKey&)>& which);
  // Unfinished rounds that this peer and `peer` are in.
  std::vector<RoundKey> waiting_for(const Seat& peer) const;
  void silence();

 private:
  enum class Stage : std::uint8_t { kSums, kSummed, kAwaited, kGiven, kOver };
  struct Memory {  // where the region begins
    DeviceAddress sums = nullptr, island = nullptr, reduced = nullptr;
  };
  struct Round {
    RoundKey key;
    Island island;
    Region region;
    Memory at;
    Stage stage = Stage::kSums;
    bool average_is_there = false;  // at who speaks

    bool speaks() const { return island.own == 0; }
  };
  using RoundPtr = std::shared_ptr<Round>;
  struct Meeting {
    std::uint64_t number = 0;
    FabricKind kind = FabricKind::kNone;
    std::vector<Seat> members;
    std::unique_ptr<FabricGroup> group;
  };
  struct EarlyWord {
    wire::FabricWord word;
    Buffer bytes;
  };
  using EarlyWords = std::map<Seat, std::deque<EarlyWord>>;  // in the order in which each came
  // Of a slice, in bytes from where the region begins.
  struct Slice {
    std::uint64_t first = 0;
    std::uint64_t size = 0;
  };

  bool is_current(const RoundPtr& round) const;
  bool meet(const Round& round);
  Result<void> keep_early(const Seat& from, const wire::FabricWord& word, const Frame& frame);
  EarlyWords take_early(const std::function<bool(const wire::FabricWord&)>& which);
  void feed_early(GroupId group);
  Result<void> take_word(const Seat& from, const wire::FabricWord& word, BytesView bytes);
  void exchange(const RoundPtr& round, std::vector<FabricTransfer> transfers,
                std::function<void(const RoundPtr&)> then);
  // A job of the round, and what follows it.
  void run(const RoundPtr& round, std::function<Result<void>(Round&)> body,
           std::function<void(const RoundPtr&)> then);
  Result<void> find_memory(Round& round, std::uint64_t step);  // [device]
  void scatter(const RoundPtr& round);
  Result<void> add(Round& round);  // [device]
  void gather(const RoundPtr& round);
  void gathered(const RoundPtr& round);
  void take(const RoundPtr& round);
  void share(const RoundPtr& round);
  void averaged(const RoundPtr& round);
  void fail(const RoundPtr& round, const Error& error);

  StageContext& context_;
  StageJobs& jobs_;
  Hooks hooks_;
  std::map<GroupId, RoundPtr> rounds_;
  std::map<GroupId, Meeting> meetings_;
  EarlyWords early_;
  std::uint64_t first_open_step_ = 0;  // those before it are over
  CallbackGuard guard_;
};

}  // namespace swarmline
