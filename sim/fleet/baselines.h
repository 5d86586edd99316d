// Other ways to train on machines that are taken away, over the same fleet, as timelines. All of
// them are given a machine when it can be used (usable_fleet(): the same joins for all), and start
// without a cost at time 0. What a model leaves out favours the baseline:
//   Restart:     a job of whole pipelines that ends with any machine it uses. Everything begins
//                again from the newest checkpoint after restart_seconds, which hold detection,
//                rendezvous and loading, whatever the state's size. Machines beyond whole pipelines
//                wait; those that come during a restart are taken in. The period between
//                checkpoints is the caller's (Daly's: daly_period()).
//   Redundancy:  each node computes its successor's layers, too, and takes them over when that is
//                lost. Rules and figures of Bamboo's own simulator (github.com/uclasystem/bamboo,
//                project_pactum/simulation/simulator.py, commit 1057ba8): a step with such a node
//                takes kRedundancySlowdown times as long; two neighbours lost are fatal. Nodes are
//                assigned anew in kRedundancyLocalSeconds when as many wait as are missed, when
//                more than a twentieth of the nodes can't be lost, or for another pipeline, and in
//                kRedundancyGlobalSeconds after a fatal loss. Bamboo goes back to a checkpoint
//                then; here it does so only where no other pipeline holds the state. A node that is
//                given another stage than its own or its successor's fetches it first.
//   Replicas:    torchft: replicas hold the whole model, each on `machines` of them; a lost machine
//                takes its replica and the open step of all, half done on average, and the others
//                wait for its heartbeat (heartbeat_timeout_ms = 5000, src/lighthouse.rs). Others
//                join without a pause.
//   Steady:      machines on demand, never taken.
//   Thread:      any; pure. CHECK: the fleet names its machines; stages and machines above 0.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/fleet/fleet.h"
#include "sim/fleet/work_timeline.h"

namespace swarmline {

struct RestartJob {
  std::uint32_t stages = 1;
  double restart_seconds = 180;
  // Begins anew, after a checkpoint, as soon as there are machines for another pipeline; else they
  // wait for the next loss.
  bool grows_at_once = true;
  bool saves_at_notice = false;  // writes a checkpoint before it loses a machine
};
std::vector<WorkSpan> restart_timeline(const Fleet& usable, const RestartJob& job);

// What redundant computing costs while nobody is lost: with Bamboo's GPT-2, 24 machines take 3.08 s
// for a step with it, and 15 take 4.25 s without (the simulator's measured step times): 16 % more
// machine time. BERT: 2.30 s and 3.05 s, 21 %.
inline constexpr double kRedundancyOverhead = 24 * 3.08 / (15 * 4.25) - 1;
inline constexpr double kRedundancySlowdown = 1.5;
inline constexpr double kRedundancyLocalSeconds = 20;
inline constexpr double kRedundancyGlobalSeconds = 30;
// `state_seconds`: until a node has a stage's state that it has not computed before.
std::vector<WorkSpan> redundancy_timeline(const Fleet& usable, std::uint32_t stages,
                                          double state_seconds);

inline constexpr double kReplicaHeartbeatSeconds = 5;
// `noticed`: who is taken leaves between two steps, so that none is dropped and nobody waits.
std::vector<WorkSpan> replica_timeline(const Fleet& usable, std::uint32_t machines, bool noticed);

std::vector<WorkSpan> steady_timeline(double seconds, std::uint32_t peers_a_stage);

}  // namespace swarmline
