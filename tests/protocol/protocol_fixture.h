// A swarm with the real tiny model in fp64, an event sequence forced on it, and the single-process
// reference it must equal.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/pipeline/swarm_harness.h"

namespace swarmline {

// What the reference trainer ends with. The true gradient of a bias of all keys is zero: Adam makes
// steps of the rounding of its sums, so how far apart runs are that add in other orders is
// measured.
struct Reference {
  Tensors tensors;
  // Largest difference of two of kPermutedReferences + 1 orders of adding.
  double key_bias_noise = 0;
};
inline constexpr int kPermutedReferences = 4;
// Of that config; computed once per config.
const Reference& reference_of(const RunConfig& config, std::uint32_t vocab = 31);
// With hooks, the same ones on the reference's model as on each peer's.
Reference reference_with(const RunConfig& config, const ModelHooks& hooks,
                         std::uint32_t vocab = 31);
void expect_equal(const Tensors& got, const Reference& want);
// The first stage's sums get a NaN with one microbatch of step 1.
ModelHooks poison();

// Every bracketed sequence runs without and with delay.
class Protocol : public testing::TestWithParam<std::uint32_t> {
 protected:
  RunConfig run_of(std::vector<std::uint32_t> peers) const;
  // `options` may be edited between make() and the first event.
  SimClusterOptions options_for(const RunConfig& config, ModelHooks hooks = {});
  // The run ends well, equals the reference, replicas are bit-equal and no model keeps a graph, but
  // those of peers that were killed at work.
  void expect_reference(Swarm& swarm, const RunConfig& config, int killed_at_work = 0);
  void expect_no_graphs(int killed_at_work = 0) const;
  // The run, without delay twice: it ends well with the reference's parameters, and is the same
  // run again.
  using Scenario = std::function<void(Swarm&)>;
  using Change = std::function<void(SimClusterOptions&)>;  // of the swarm that is made
  void twice(const RunConfig& config, const Scenario& scenario) {
    twice(config, [](SimClusterOptions&) {}, scenario);
  }
  void twice(const RunConfig& config, const Change& change, const Scenario& scenario);
  static Change on(std::vector<SimPeer> machines) {
    return [=](SimClusterOptions& options) { options.peers = machines; };
  }

  std::vector<const StageModel*> models_;  // of the swarm made last
};

}  // namespace swarmline
