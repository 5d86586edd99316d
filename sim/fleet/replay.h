// What share of a fleet's possible throughput a way of balancing reaches, as machines come and go.
// The planner is the real one; pipeline and network are a model:
//   throughput = the slowest stage's sum of the speeds of those who serve it (all peers speed 1);
//   a newcomer first downloads its stage's parameters, a mover too unless it is the stage's shadow;
//   then it serves, and downloads the rest over `rest_link_share` of its link, which costs it
//   `rest_load` of its speed. It can't step without the rest: when a step ends before that is here,
//   it waits for what is missing, over all of its link; when one ends before the parameters are
//   here, it serves when it has all. Until then it is no holder of its stage's state, is not moved,
//   and hosts no shadow. A step ends every `step_seconds`;
//   a shadow's download takes `shadow_link_share` of its host's link, and that share of its speed;
//   following costs the host `shadow_load` of its speed; a mover first hands over what it has
//   summed, unless into an emptied stage, where that is done again by others, or at a step's end.
//   The planner waits for the end of a step that is not worth a hand-over any more
//   (balancer/hand_over_worth.h). A mover drops what it follows.
//   Optimal(t) = the best free seating of those then alive: floor(n / stages).
//   The fleet that is there at time 0 has its state already.
//   With the same seed the same peers leave, whatever the policy. Thread: any, stateless.
//   Source: SWARM paper, section 4.4 and appendix H (stage counts, seeds, "% of optimal").
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "balancer/plan.h"
#include "sim/fleet/fleet.h"
#include "sim/fleet/work_timeline.h"

namespace swarmline {

enum class ReplayPolicy : std::uint8_t {
  kNone,       // newcomers go to a stage drawn at random, nobody moves
  kPaperRule,  // newcomers go to the weakest stage; every `period_seconds` one peer moves
  kSwarmline,  // plan_swarm() at every event
  // Not a policy: what nobody can pass. Newcomers count when the download that they can't serve
  // without is over, after that everything is free.
  kBound,
};

struct ReplayOptions {
  std::uint32_t stages = 4;
  std::uint64_t seed = 1;  // of who leaves (fleets of counts) and of random seats
  ReplayPolicy policy = ReplayPolicy::kSwarmline;
  double period_seconds = 300;            // of the paper's rule
  double parameters = 201e6;              // of a stage
  double state_bytes_per_parameter = 12;  // parameter and two moments in fp32; 0: free
  // Of these what it serves with; as many as all of them: it serves when it has all.
  double served_bytes_per_parameter = 4;
  double rest_link_share = 0.5;
  double rest_load = 0.07;
  double handover_bytes_per_parameter = 4;  // the sums of an open step in fp32
  double link_bits_per_second = 200e6;
  double shadow_link_share = 0.5;
  // Reduced gradients reach a shadow once a step, in 8 bits: bytes * 8 / (step * link).
  double step_seconds = 233;
  double gradient_bytes_per_parameter = 1.016;
  // Machines numbered from it on are never taken: then all others are at risk for the planner.
  std::optional<std::uint32_t> first_safe_node;
  // Of timelines alone. Nobody trains until a loss is noticed. `notice_seconds` before machines are
  // taken they say so (0: they do not): enough to hand over what they have summed, none of it is
  // computed again and nobody waits; enough for a shadow's download, somebody else has the state.
  double loss_stall_seconds = 0;
  double notice_seconds = 0;
  PlanOptions plan;  // link and load are taken from the figures above
};

struct ReplaySpan {
  double achieved = 0;  // integral of throughput over time
  double optimal = 0;
  double share() const { return optimal > 0 ? achieved / optimal : 1; }
};

struct ReplayResult {
  ReplaySpan overall, first_hour, last_hour;
  double seconds = 0;
  double seconds_without_optimum = 0;  // fewer peers than stages: left out of the spans
  std::uint64_t joins = 0;
  std::uint64_t moves = 0;
  std::uint64_t instant_moves = 0;
  std::uint64_t shadow_downloads = 0;
  std::uint64_t stages_emptied = 0;   // lost every active peer at once
  std::uint64_t stages_survived = 0;  // of those, with a living shadow: no commit lost
};

// CHECK: stages > 0, period_seconds > 0, link_bits_per_second > 0, step_seconds > 0,
// shadow_link_share and rest_link_share in (0, 1].
ReplayResult replay_fleet(const Fleet& fleet, const ReplayOptions& options);
// The same replay as a timeline. A lost peer's share of the open step is computed again, half of it
// on average. A stage emptied without a shadow takes the run back to its checkpoint, which all
// fetch.
std::vector<WorkSpan> replay_timeline(const Fleet& fleet, const ReplayOptions& options);
// Over several runs: times and counts add up, so that spans weigh by their optimum.
void add_result(ReplayResult& sum, const ReplayResult& one);

}  // namespace swarmline
