// Codecs at work in whole simulated swarms: chosen by measurements, rounded stochastically, fed
// back.
#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "compression/codec.h"
#include "sim/cluster/fake_stage_model.h"
#include "sim/cluster/resident_model.h"
#include "tests/harness/mark_expected.h"
#include "tests/pipeline/swarm_harness.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

RunConfig run_of(std::vector<std::uint32_t> peers) {
  RunConfig config = small_run(std::move(peers));
  config.model.d_model = 64;
  config.batch.sequence = 16;  // 2 * 16 * 64 elements cross a boundary
  return config;
}

struct Seen {
  std::map<std::uint64_t, std::set<std::string>> forward, backward;  // by step
  std::uint64_t hash = 0;
  std::uint64_t again = 0;  // tensors of attempts other than the first
  Tensors parameters;
  std::string codecs;  // as the journal has them
};

Seen run(const RunConfig& config, double bytes_per_second,
         const MakeModel& make_model = make_fake_model) {
  SimClusterOptions options = swarm_of(config, make_model);
  options.link.bytes_per_second = bytes_per_second;
  Swarm swarm(std::move(options));
  Seen seen;
  swarm.watch([&](SimNodeId, SimNodeId, const Frame& frame) {
    if (frame.payload.empty()) return;
    const bool forward = kind_of(frame) == MessageKind::kForward;
    if (!forward && kind_of(frame) != MessageKind::kGradient) return;
    const auto id = attempt_of(frame);
    const auto header = read_wire_header(frame.received_payload());
    ASSERT_TRUE(id && header);
    if (id->microbatch.phase.kind != PhaseKind::kTrain) return;
    seen.again += id->attempt.value != 0;
    auto& steps = forward ? seen.forward : seen.backward;
    steps[id->microbatch.phase.step].insert(to_string(header->codec));
  });
  swarm.finish();
  seen.hash = swarm.cluster().trace_hash();
  seen.parameters = swarm.cluster().parameters();
  if (auto codecs = swarm.cluster().journal().get_meta("codecs"); codecs && *codecs)
    seen.codecs = **codecs;
  return seen;
}

using Names = std::set<std::string>;

TEST(AutoCodec, ASlowLinkIsCompressedFromACommitOnAFastOneIsNot) {
  RunConfig config = run_of({1, 1});
  config.codec.forward = config.codec.backward = "auto";
  for (const std::uint32_t delay : {0U, 1U}) {
    config.pipeline.delay = delay;
    const Seen slow = run(config, 500e3);  // 16 KiB of fp64 take 33 ms, a device 12 ms
    EXPECT_EQ(slow.forward.at(0), Names{"none"});
    EXPECT_EQ(slow.backward.at(0), Names{"none"});
    for (const auto* way : {&slow.forward, &slow.backward}) {
      for (const auto& [step, names] : *way)
        EXPECT_EQ(names.size(), 1U) << "step " << step << " has two codecs";
      EXPECT_NE(way->at(3), Names{"none"});
      EXPECT_NE(way->at(3), Names{"h4"}) << "beyond the error budget";
      EXPECT_NE(way->at(3), Names{"int4"});
    }
    EXPECT_FALSE(slow.codecs.empty()) << "not in the journal";
    const Seen again = run(config, 500e3);
    EXPECT_EQ(again.hash, slow.hash);
    EXPECT_EQ(again.parameters, slow.parameters);

    const Seen fast = run(config, 1e9);
    for (const auto* way : {&fast.forward, &fast.backward})
      for (const auto& [step, names] : *way) EXPECT_EQ(names, Names{"none"}) << step;
    EXPECT_EQ(fast.codecs, "");
  }
}

TEST(AutoCodec, ABudgetOfNothingStaysExact) {
  RunConfig config = run_of({1, 1});
  config.codec.forward = config.codec.backward = "auto";
  config.codec.error_budget = 1e-9;
  const Seen seen = run(config, 500e3);
  for (const auto& [step, names] : seen.forward) EXPECT_EQ(names, Names{"none"}) << step;
}

// A contribution depends on (version, step, stage, index) alone: who computes it, when, and in
// which attempt leaves no trace in what stochastic rounding makes of it.
TEST(StochasticCodec, PeersAndAttemptsChangeNothing) {
  RunConfig config = run_of({1, 1, 1});
  config.codec.forward = config.codec.backward = "h8";
  config.codec.stochastic = true;
  const Seen one = run(config, 0);
  RunConfig nearest = config;
  nearest.codec.stochastic = false;
  EXPECT_NE(run(nearest, 0).parameters, one.parameters);
  RunConfig many = config;
  many.pipeline.peers = {2, 3, 2};
  many.wiring.hop_timeout_seconds = 0.02;  // many are sent again
  const Seen shared = run(many, 20e6);
  EXPECT_GT(shared.again, 0U);
  expect_equal(shared.parameters, one.parameters);
}

TEST(FeedbackCodec, ReplicasStayEqualAndRunsRepeat) {
  for (const char* codec : {"int4", "h4", "topk"}) {
    RunConfig config = run_of({2, 3});
    config.codec.averaging = codec;
    config.codec.topk = 0.2;
    config.codec.error_feedback = true;
    config.run.steps = 6;
    const Seen first = run(config, 50e6);  // parameters() checks that replicas are bit-equal
    const Seen again = run(config, 50e6);
    EXPECT_EQ(again.hash, first.hash) << codec;
    EXPECT_EQ(again.parameters, first.parameters) << codec;
    if (std::string(codec) == "topk") continue;  // never without
    config.codec.error_feedback = false;
    EXPECT_NE(run(config, 50e6).parameters, first.parameters) << codec;
  }
}

// Where sums are in a device's memory, parts leave it encoded and residuals stay there.
TEST(FeedbackCodec, ReplicasOnDevicesStayEqualAndRunsRepeat) {
  const MarkExpected taken("device_rounds.begun");
  for (const char* codec : {"lin8", "topk"}) {
    RunConfig config = run_of({2, 3});
    config.codec.averaging = codec;
    config.codec.topk = 0.2;
    config.run.steps = 6;
    config.pipeline.delay = codec == std::string("topk") ? 1 : 0;
    const Seen first = run(config, 50e6, make_resident_model);
    const Seen again = run(config, 50e6, make_resident_model);
    EXPECT_EQ(again.hash, first.hash) << codec;
    EXPECT_EQ(again.parameters, first.parameters) << codec;
  }
}

// One peer averages with one other, each with what it always has: the same sums, wherever they are.
TEST(FeedbackCodec, OnDevicesARunEndsAsOnHosts) {
  RunConfig config = run_of({2});
  config.codec.averaging = "int4";
  config.codec.error_feedback = true;
  config.run.steps = 6;
  config.batch.batch = config.batch.microbatch;
  expect_equal(run(config, 50e6, make_resident_model).parameters, run(config, 50e6).parameters);
}

// Tensors decoded while they arrive make the same run, with every codec and through resends.
TEST(EarlyDecode, ChangesNothing) {
  for (const char* codec : {"none", "h8", "bf16"}) {
    RunConfig config = run_of({2, 2, 1});
    config.codec.forward = config.codec.backward = codec;
    config.wiring.hop_timeout_seconds = 0.05;
    const auto parameters = [&](std::uint64_t arrival_bytes_min) {
      SimClusterOptions options = swarm_of(config, make_fake_model);
      options.link.bytes_per_second = 1e6;
      options.arrival_bytes_min = arrival_bytes_min;
      Swarm swarm(std::move(options));
      swarm.finish();
      return swarm.cluster().parameters();
    };
    expect_equal(parameters(1), parameters(~std::uint64_t{0}));
  }
}

TEST(CodecMonitor, ErrorsAndRatesAreInTheStatus) {
  RunConfig config = run_of({1, 1});
  config.codec.forward = "int4";
  SimClusterOptions options = swarm_of(config, make_fake_model);
  options.link.bytes_per_second = 1e6;
  Swarm swarm(std::move(options));
  swarm.finish();
  const std::string status = swarm.cluster().coordinator().status_json();
  EXPECT_NE(status.find("\"forward_codec\":\"int4\",\"forward_error\":0.0"), std::string::npos)
      << status;
  EXPECT_NE(status.find("\"backward_codec\":\"none\",\"backward_error\":0,"), std::string::npos)
      << status;
  EXPECT_NE(status.find("\"forward_bytes_per_second\":1000000"), std::string::npos) << status;
  const auto& lines = swarm.cluster().log_lines();
  EXPECT_TRUE(std::ranges::any_of(lines, [](const std::string& line) {
    return line.find(
               "\"forward_codec\":\"int4\",\"backward_codec\":\"none\",\"forward_error\":0.") !=
           std::string::npos;
  }));
}

}  // namespace
}  // namespace swarmline
