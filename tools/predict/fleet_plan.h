// The cheapest way to train a run on a fleet whose machines come and go, and what other ways to
// train would make of the same fleet.
//   What:    every setting is replayed over the whole trace (sim/fleet): stages, machines rented of
//            the trace, machines on demand beside them, shadows, codec of activations, period of
//            checkpoints. Speeds are predicted (fleet_prediction.h), joins and checkpoints move a
//            stage's state over one machine's link. Each other way gets its own best setting out of
//            the same ones, so that it is not judged by a setting that suits this one.
//   Egress:  all bytes that machines send each other at one price a GB: boundaries and averaging of
//            all steps, lost ones too; states that newcomers, movers and shadows fetch, and what
//            shadows follow, where this project's way says who does. Not checkpoints.
//   Not in it: storage, evaluations; machines of several classes.
//   Units:   seconds, tokens, dollars. Errors: kUserMistake in one sentence.
//   Bounds:  kFleetPlanStagesMax numbers of stages; a trace of at least kPlanTraceSecondsMin.
//   Thread:  any; pure: the same question, the same plan.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sim/fleet/fleet.h"
#include "sim/fleet/work_timeline.h"
#include "tools/predict/fleet_prediction.h"

namespace swarmline {

inline constexpr std::size_t kFleetPlanStagesMax = 64;
inline constexpr double kPlanTraceSecondsMin = 600;
// Until a peer that fell silent is noticed: docs/failures.md.
inline constexpr double kPlanLossStallSeconds = 3;

struct FleetPlanQuestion {
  FleetQuestion fleet;                       // of one class of machines, with both its prices
  Fleet trace;                               // when such machines are to be had
  std::string prices_path, trace_path;       // where both are from, for sentences
  std::vector<std::uint32_t> stages = {};    // to try; empty: chosen by the model
  std::vector<std::uint32_t> machines = {};  // most to rent at a time; empty: chosen by the trace
  std::vector<std::string> codecs = {};      // empty: the run's own, and h8
  double least_tokens_per_second = 0;        // slower settings do not count
  // Between the word that a machine is taken and its end; 0: no word. What a peer makes of it:
  // ReplayOptions. Where a checkpoint can be written meanwhile, checkpoint-restart loses only its
  // restart; a replica that leaves so drops no step.
  double notice_seconds = 0;
  // Training goes on while a checkpoint is written; then checkpoint-restart writes as often as it
  // can, since Daly's period is that of writes that are waited for.
  bool background_checkpoints = false;
  std::uint64_t seed = 1;  // of who leaves a fleet of counts
};

enum class FleetWay : std::uint8_t {
  kSwarmline,
  kOnDemand,
  kRestart60,
  kRestart180,
  kRestart300,
  kRedundancy,
  kReplicas,
};
inline constexpr FleetWay kFleetWays[] = {
    FleetWay::kSwarmline,  FleetWay::kOnDemand,   FleetWay::kRestart60, FleetWay::kRestart180,
    FleetWay::kRestart300, FleetWay::kRedundancy, FleetWay::kReplicas};
std::string name_of(FleetWay way);  // "checkpoint-restart at 180 s"

struct FleetSetting {
  std::uint32_t stages = 1;
  std::uint32_t machines = 0;                // of the trace, at a time at most
  std::uint32_t on_demand = 0;               // beside them
  std::optional<std::uint32_t> shadows = 0;  // a stage; empty: auto
  std::string codec;
  double checkpoint_seconds = 0;  // of training between two
};

struct FleetOutcome {
  FleetWay way = FleetWay::kSwarmline;
  FleetSetting setting;
  WorkAccount work;
  double machines_mean = 0;  // paid at a time, on demand included
  double tokens_per_second = 0;
  double dollars_per_billion_tokens = 0;  // infinite: nothing was trained
  double egress_dollars = 0;              // of that, over the whole trace
  // Of what as many machines would train with that setting if none was ever taken.
  double goodput = 0;
  double egress_share() const {  // of the cost
    const double dollars = dollars_per_billion_tokens * work.tokens / 1e9;
    return dollars > 0 ? egress_dollars / dollars : 0;
  }
};

struct FleetPlan {
  FleetOutcome best;
  // The best outcome of each way there is, in the order of kFleetWays; of a way that nowhere
  // reaches least_tokens_per_second, its fastest one.
  std::vector<FleetOutcome> ways;
  // Of each way and number of rented machines the cheapest outcome, machines rising.
  std::vector<FleetOutcome> by_machines;
  std::uint64_t settings_tried = 0;
  double least_tokens_per_second = 0;
  FleetQuestion at_best;  // the plan's own setting with as many machines as it had on average
};

// Called before each part of the search, with how many there are in all.
using FleetPlanProgress =
    std::function<void(std::size_t number, std::size_t of, const std::string& what)>;
Result<FleetPlan> plan_fleet(const FleetPlanQuestion& question, const FleetPlanProgress& progress);

}  // namespace swarmline
