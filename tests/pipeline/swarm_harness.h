// Forced event sequences on a whole swarm in virtual time: finds nodes by stage, catches frames by
// kind, makes models fail, and compares parameters.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "pipeline/protocol/message_kinds.h"
#include "sim/cluster/sim_cluster.h"
#include "sim/oracles/swarm_oracles.h"
#include "tests/pipeline/swarm_config.h"

namespace swarmline {

using Tensors = std::map<std::string, std::vector<std::byte>>;

// Sits before a real model and may fail, or change what it returns. Set once, before the swarm
// starts.
struct ModelHooks {
  // `replica`: 0, 1, ... in the order in which peers of the stage were seated.
  std::function<Result<void>(StageId stage, int replica, const AttemptId& id)> before_forward;
  std::function<Result<void>(StageId stage, int replica, const AttemptId& id)> before_backward;
  std::function<void(StageId stage, int replica, const BackwardInput& input)> after_backward;
  std::function<void(StageId stage, int replica, const StageModel& model)> made;
};
MakeModel hooked(MakeModel make_model, ModelHooks hooks);

// A run whose frames pass a test's eyes. One rule sees each frame as it is sent, the counts those
// delivered.
class Swarm {
 public:
  explicit Swarm(SimClusterOptions options);

  SimCluster& cluster() { return cluster_; }
  // Which node serves (stage, replica); all peers must have their seats.
  SimNodeId node(std::uint16_t stage, std::size_t replica);
  std::uint16_t stage_of(SimNodeId node);
  // Who serves the stage now.
  std::vector<SimNodeId> serving(std::uint16_t stage);
  // Until every peer has its seat and the first phase is opened.
  void until_started();
  // ... and that many steps are committed.
  void until_committed(std::uint64_t steps);

  // Rules run in the order in which they were added; the first that does not deliver decides.
  using Rule = std::function<FrameFate(SimNodeId from, SimNodeId to, const Frame&)>;
  void rule(Rule rule) { rules_.push_back(std::move(rule)); }
  void watch(SimNetwork::Tap tap) { taps_.push_back(std::move(tap)); }
  // Frames for which `which` holds are lost, each with its connection; the first `times` of them.
  using Which = std::function<bool(SimNodeId from, SimNodeId to, const Frame&)>;
  void lose(Which which, std::uint64_t times = std::numeric_limits<std::uint64_t>::max());
  std::uint64_t lost() const { return lost_; }
  // The two reach each other no more.
  void part(SimNodeId one, SimNodeId other);
  void hold(SimNodeId from, SimNodeId to, std::optional<MessageKind> kind = {});
  // Lets go what hold() holds, and ends that rule.
  std::size_t release(SimNodeId from, SimNodeId to);
  void freeze(SimNodeId node) { cluster_.runtime().freeze(node); }
  void thaw(SimNodeId node) { cluster_.runtime().thaw(node); }
  void kill(SimNodeId node) { cluster_.network().kill(node); }
  void kill_stage(std::uint16_t stage);  // all who serve it

  // Frames delivered so far.
  std::uint64_t delivered(MessageKind kind, std::optional<SimNodeId> from = {},
                          std::optional<SimNodeId> to = {}) const;
  bool until(const std::function<bool()>& done, Duration limit = std::chrono::seconds(60)) {
    return cluster_.run_until(done, limit);
  }
  // Until `count` more frames of that kind are delivered.
  bool until_delivered(MessageKind kind, std::uint64_t count, std::optional<SimNodeId> from = {},
                       std::optional<SimNodeId> to = {});
  // To the end of the run; a test failure when it does not end, or not well, or when the oracles
  // found a microbatch that nobody tried, or something without a bound.
  void finish();
  const SwarmOracles& oracles() const { return oracles_; }
  RunOutcome end(Duration limit = std::chrono::seconds(3600));

 private:
  struct Hold {
    SimNodeId from, to;
    std::optional<MessageKind> kind;
  };
  SimCluster cluster_;
  SwarmOracles oracles_{cluster_};
  std::deque<Rule> rules_;  // may grow while one is called
  std::vector<Hold> holds_;
  std::deque<SimNetwork::Tap> taps_;
  std::uint64_t lost_ = 0;
  std::map<std::tuple<MessageKind, SimNodeId, SimNodeId>, std::uint64_t> delivered_;
};

// The attempt that a Forward, Gradient, ForwardDone, GradientArrived, Refused, Cancel, Claim or
// StallReport names.
std::optional<AttemptId> attempt_of(const Frame& frame);

// Of float64 values.
double largest_difference(BytesView one, BytesView other);
bool is_key_bias(const std::string& tensor);
// Equal within 1e-9 of each tensor's peak; key biases, whose true gradient is zero, within
// `key_bias_bound` more.
void expect_equal(const Tensors& got, const Tensors& want, double key_bias_bound = 0);
// What a run of fake models ends with where each stage has one peer: no choice, no averaging,
// nobody to lose. Of the same cut; computed once for each.
const Tensors& one_each(RunConfig config);
// The newest committed version.
std::uint64_t commits_of(SimCluster& cluster);
// Of that kind, with `detail` in their text, in the journal.
std::size_t events(Swarm& swarm, const std::string& kind, const std::string& detail = "");
std::string history(Swarm& swarm);                 // all events, a line each
std::string called(Swarm& swarm, SimNodeId node);  // the peer there, as events call it

}  // namespace swarmline
