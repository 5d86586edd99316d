// What a fleet would train of a run, before it is rented: a model of the pipeline, nothing measured
// here.
//   Devices and links are queues. Of each stage, every peer has a device (one forward and one
//   backward a microbatch) and an uplink; a microbatch visits a peer of each stage with the
//   probability of its speed; latencies are delays without a queue; the in-flight window is the
//   number of customers. Rate and queues by approximate mean value analysis (Schweitzer 1979;
//   Reiser and Lavenberg 1980), with the residual of service times that do not vary; a lease for
//   the next one takes two more messages. A step adds its fill and drain: half of an empty
//   pipeline's round trip, what the slowest peer of a stage takes longer than the mean one, and how
//   much longer the slowest source works on its window than all of them on theirs. Averaging:
//   butterfly, equal slices, over the slowest uplink.
//   Weight gradients, half of a backward, take the device's time and keep nobody waiting, but for
//   four of them at the step's end; at the first stage the source waits for them.
//   Memory:  where a class says what it has, no peer of it is seated at a stage that needs more,
//            with activations dropped unless the config forbids that, at no cost.
//   Not in it: optimizer steps, evaluations, checkpoints, losses of peers.
//   Units:   seconds, bits per second, FLOP/s of forward + backward as they are reached, dollars.
//   Errors:  kUserMistake: too few peers for the stages, an order of microbatches but "free".
//   Thread:  any; pure. Source of the regime: SWARM, Ryabinin et al., ICML 2023.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/config/run_config.h"
#include "engine/model/model_spec.h"

namespace swarmline {

struct FleetClass {  // peers that are alike
  std::string name;
  std::uint32_t count = 0;
  double flops_per_second = 0;
  double forward_share = 1.0 / 3;         // of the time of a forward and its backward
  double dollars_per_hour = 0;            // of one peer
  double on_demand_dollars_per_hour = 0;  // of the same machine, never taken away; 0: not known
  std::uint64_t memory_bytes = 0;         // of its device; 0: everything fits
  double bits_per_second = 0;             // each way; 0: links cost nothing
  double latency_seconds = 0;             // one way; between two classes the mean of theirs
  double egress_dollars_per_gb = 0;       // of 10^9 bytes that one sends to any other
};

struct FleetQuestion {
  RunConfig config;  // [pipeline] peers is not read: the fleet says who there is
  ModelSpec model;
  std::vector<FleetClass> classes;
  // By stage: how many of each class serve it. Empty: seated by the planner, all of them.
  std::vector<std::vector<std::uint32_t>> seats;
};

// A part of all peers taken as twice as fast, to see what a step waits for.
enum class FleetPart : std::uint8_t { kNone, kDevices, kLinks, kLatency, kAveraging };

struct FleetStage {
  StageSpec stage;
  std::vector<std::uint32_t> seats;  // by class
  double device_busy = 0;            // mean over its peers, 0..1, while microbatches flow
  double link_busy = 0;              // of uplinks
  double averaging_seconds = 0;
};

// What peers send each other of a step: boundaries' tensors as their codecs write them, and
// averaging. Framing, target tokens, states and checkpoints are not in it.
struct FleetTraffic {
  double boundary_bytes = 0;
  double averaging_bytes = 0;
  double dollars = 0;
  double bytes() const { return boundary_bytes + averaging_bytes; }
};

struct FleetPrediction {
  double tokens_per_second = 0;
  double step_seconds = 0;
  double batch_seconds = 0;      // of a step's microbatches, fill and drain included
  double drain_seconds = 0;      // fill and drain
  double averaging_seconds = 0;  // of the slowest stage, with its messages
  std::uint32_t in_flight = 0;   // microbatches, in all
  double dollars_per_hour = 0;   // of machines
  FleetTraffic traffic;          // of a step
  double egress_dollars_per_hour = 0;
  double dollars_per_billion_tokens = 0;  // of machines and egress
  std::vector<FleetStage> stages;
  // What a step waits for most, and by how much more would be trained if that were twice as fast.
  FleetPart bottleneck = FleetPart::kNone;
  std::uint32_t bottleneck_stage = 0;  // of devices and links: where they are busiest
  double bottleneck_gain = 0;          // 0.2: a fifth more tokens/s
};

Result<FleetPrediction> predict_fleet(const FleetQuestion& question);
// That alone, at a fifth of the price.
Result<double> predict_tokens_per_second(const FleetQuestion& question);
Result<FleetTraffic> predict_traffic(const FleetQuestion& question);

struct FleetChange {
  std::string what;  // "codec.forward and codec.backward = \"lin8\""
  double tokens_per_second = 0;
  double gain = 0;  // 0.2: a fifth more tokens/s
  double dollars_per_billion_tokens = 0;
};
// Single changes of config or fleet that train at least kFleetGainMin more, or as much for that
// much less money; the largest gain first, at most kFleetChangesMax.
inline constexpr double kFleetGainMin = 0.01;
inline constexpr std::size_t kFleetChangesMax = 10;
std::vector<FleetChange> fleet_changes(const FleetQuestion& question,
                                       const FleetPrediction& prediction);

}  // namespace swarmline
