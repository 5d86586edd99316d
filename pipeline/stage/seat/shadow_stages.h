// The stages that a peer follows beside the one it serves: their parameters and optimizer state in
// host memory, stepped at each commit, so that it can take one over at once.
//   What:      each is a joiner that is never seated: fetches a frozen state from the stage's
//              members, fetches each step's reduced gradient, says what it holds.
//   Names:     a seat: the peer's, with the stage that it follows. It speaks and is spoken to under
//              that one, over the connections of its peer.
//   Ownership: the doors and the links outlive them. Thread: control thread; their steps are jobs
//              of the peer's device.
//   Errors:    a shadow's own end it (`fail` of its parts), not its peer.
//   Bounds:    as many as the coordinator asks for; four copies of a stage's parameters each, six
//              with a delay.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "engine/metrics/metrics.h"
#include "pipeline/stage/seat/seated_stage.h"

namespace swarmline {

class ShadowStages {
 public:
  ShadowStages(Runtime& runtime, DeviceQueue& queue, PeerLinks& links);

  bool empty() const { return stages_.empty(); }
  // `parts` of a joiner of the stage, without a model. Another shadow of that stage ends.
  void follow(SeatedStageParts parts);
  void drop(StageId stage);
  void drop_all();
  SeatedStage* find(const Seat& name) const;  // null: there is none, or it has ended
  void on_link_lost(const Seat& peer, const Error& error);
  void on_peer_lost(const Seat& lost);
  // Hands one over, or null. The device must let go of it (DeviceQueue::clear) before it is used.
  std::shared_ptr<SeatedStage> take(StageId stage);
  void clear();  // the device has let go of all
  std::vector<const SeatedStage*> list() const;
  void check_invariants() const;

 private:
  Runtime& runtime_;
  DeviceQueue& queue_;
  PeerLinks& links_;
  Registry metrics_;  // of nobody's interest
  std::map<StageId, std::shared_ptr<SeatedStage>> stages_;
  std::vector<std::shared_ptr<SeatedStage>> ending_;  // jobs of theirs may be on the device
};

}  // namespace swarmline
