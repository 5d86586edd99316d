// One swarm in virtual time, the real coordinator and peers, measured: what the comparisons with
// GPipe, 1F1B and the reference's wiring are made of.
//   Devices: hold for given service times. Links: every peer has one uplink and one downlink,
//            shared by all it talks to; a tensor takes `wire` on each, at the same time; then comes
//            a latency drawn anew for each frame. The coordinator's messages have latency alone.
//   Result:  a pure function of the plan. Thread: one.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/cluster/sim_cluster.h"

namespace swarmline::bench {

enum class Rule : std::uint8_t {
  kSwarm,      // wiring = "stochastic"
  kGPipe,      // wiring = "static", order = "gpipe"
  k1F1B,       // wiring = "static", order = "1f1b"
  kReference,  // reference_wiring.h
};
const char* name_of(Rule rule);

struct SimPlan {
  Rule rule = Rule::kSwarm;
  std::vector<std::uint32_t> peers;           // by stage
  std::vector<std::vector<SimPeer>> devices;  // by stage, replica; as many as `peers` says
  std::uint32_t microbatches = 128;           // of a step
  std::uint64_t steps = 4;      // the first is not measured; with a delay, one more at either end
  std::uint32_t in_flight = 0;  // per source; 0: as the config's default
  std::uint32_t in_flight_per_peer = 8;  // gpipe has all of a peer's share in flight
  std::uint32_t delay = 0;
  Duration wire{};         // of one tensor
  Duration latency_min{};  // one way
  Duration latency_max{};
  std::uint64_t seed = 1;
};
std::vector<std::vector<SimPeer>> equal_devices(std::uint32_t stages, std::uint32_t replicas,
                                                SimPeer device);

struct SimMeasured {
  double batch_seconds = 0;      // a step's microbatches, from its opening to its seal; mean
  double averaging_seconds = 0;  // from the seal to the commit; mean
  double step_seconds = 0;       // from commit to commit; mean
  std::vector<std::vector<double>> shares;  // by stage, replica; sums to 1 a stage
  // From a first stage's sending to the gradient's return there, sorted, seconds.
  std::vector<double> round_trips;
  double quantile(double q) const;  // of round_trips
};

RunConfig config_of(const SimPlan& plan);
SimMeasured run_simulated(const SimPlan& plan);

}  // namespace swarmline::bench
