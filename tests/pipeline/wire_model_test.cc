// Models that take and give wire buffers: the run is the one with values, event by event.
#include "sim/cluster/wire_model.h"

#include <gtest/gtest.h>

#include "sim/cluster/kept_sums_model.h"
#include "sim/cluster/resident_model.h"
#include "tests/pipeline/swarm_harness.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

RunConfig run_of(const char* codec, std::vector<std::uint32_t> peers) {
  RunConfig config = small_run(std::move(peers));
  config.model.d_model = 64;
  config.batch.sequence = 16;
  config.codec.forward = config.codec.backward = codec;
  return config;
}

struct Seen {
  RunOutcome outcome;
  std::uint64_t hash = 0;
  std::uint64_t again = 0;       // tensors of attempts other than the first
  std::uint64_t taken_back = 0;  // contributions computed once more, to be subtracted
  std::string status;            // with the codec monitor's errors
  Tensors parameters;
};

Seen run(const RunConfig& config, const MakeModel& make_model,
         std::function<void(Swarm&)> prepare = {}, double bytes_per_second = 20e6) {
  Seen seen;
  ModelHooks hooks;
  hooks.before_forward = [&](StageId, int, const AttemptId& id) -> Result<void> {
    seen.taken_back += id.attempt.value >> 63;
    return {};
  };
  SimClusterOptions options = swarm_of(config, hooked(make_model, hooks));
  options.eval_sequences = 4;
  options.link.bytes_per_second = bytes_per_second;
  options.arrival_bytes_min = 1;
  Swarm swarm(std::move(options));
  swarm.watch([&](SimNodeId, SimNodeId, const Frame& frame) {
    seen.again += kind_of(frame) == MessageKind::kForward && attempt_of(frame)->attempt.value != 0;
  });
  if (prepare) prepare(swarm);
  seen.outcome = swarm.end();
  seen.hash = swarm.cluster().trace_hash();
  seen.status = swarm.cluster().coordinator().status_json();
  if (seen.outcome.exit_code == 0) seen.parameters = swarm.cluster().parameters();
  return seen;
}

// What one peer of the last stage says stays on the way until a step was sealed without it: its
// microbatches are sent again, and what it added is taken back.
void hold_until_sealed(Swarm& swarm) {
  swarm.until_started();
  const SimNodeId a = swarm.node(0, 0), b = swarm.node(1, 0);
  const auto held = std::make_shared<std::uint64_t>(0);  // the step
  const auto sealed = std::make_shared<bool>(false);
  swarm.rule([=, &swarm](SimNodeId from, SimNodeId to, const Frame& frame) -> FrameFate {
    if (from != b || to != a || kind_of(frame) != MessageKind::kGradient || *held != 0) return {};
    const std::uint64_t step = attempt_of(frame)->microbatch.phase.step;
    if (step == 0 || step != commits_of(swarm.cluster())) return {};
    *held = step;
    swarm.hold(b, a);
    swarm.hold(b, kCoordinatorNode);
    return {.kind = FrameFate::Kind::kHold, .delay = {}};
  });
  swarm.watch([=](SimNodeId, SimNodeId to, const Frame& frame) {
    if (to == b && kind_of(frame) == MessageKind::kSeal && *held != 0)
      *sealed = *sealed || parse<wire::Seal>(frame)->phase().step() == *held;
  });
  ASSERT_TRUE(swarm.until([&] { return *sealed; }));
  swarm.cluster().runtime().run_for(200ms);
  swarm.release(b, a);
  swarm.release(b, kCoordinatorNode);
}

TEST(WireModel, MakesTheRunOfOneThatTakesValues) {
  for (const char* codec : {"none", "bf16", "h8", "auto"}) {
    RunConfig config = run_of(codec, {1, 2});
    config.codec.stochastic = codec == std::string("h8");
    config.wiring.hop_timeout_seconds = 0.5;
    const Seen values = run(config, make_fake_model, hold_until_sealed);
    const Seen wire = run(config, make_fake_wire_model, hold_until_sealed);
    EXPECT_EQ(wire.outcome.exit_code, 0) << wire.outcome.sentence;
    EXPECT_GT(wire.again, 0U) << codec;
    EXPECT_GT(wire.taken_back, 0U) << codec;
    EXPECT_EQ(wire.hash, values.hash) << codec;
    EXPECT_EQ(wire.status, values.status) << codec;
    EXPECT_EQ(wire.parameters, values.parameters) << codec;
    EXPECT_FALSE(wire.parameters.empty());
  }
}

// Contributions that are added and taken back; with a delay, two steps' sums at once.
TEST(KeptSumsModel, AreCollectedBeforeTheyAreAveraged) {
  for (const std::uint32_t delay : {0U, 1U}) {
    RunConfig config = run_of("none", {1, 2});
    config.pipeline.delay = delay;
    config.wiring.hop_timeout_seconds = 0.5;
    const auto prepare = delay == 0 ? hold_until_sealed : [](Swarm&) {};
    const Seen values = run(config, make_fake_model, prepare);
    const Seen kept = run(config, make_kept_sums_model, prepare);
    EXPECT_EQ(kept.outcome.exit_code, 0) << kept.outcome.sentence;
    EXPECT_EQ(kept.taken_back > 0, delay == 0);
    EXPECT_EQ(kept.parameters, values.parameters) << delay;
    EXPECT_FALSE(kept.parameters.empty());
  }
}

// A stage that lives on a device ends with what one on the host does: contributions taken back, two
// steps at once, both kinds of optimizer.
TEST(ResidentModel, EndsWithWhatOneOnTheHostDoes) {
  for (const std::uint32_t delay : {0U, 1U}) {
    for (const OptimizerKind kind : {OptimizerKind::kAdamW, OptimizerKind::kLamb}) {
      RunConfig config = run_of("h8", {1, 2});
      config.pipeline.delay = delay;
      config.optimizer.kind = kind;
      config.wiring.hop_timeout_seconds = 0.5;
      const auto prepare = delay == 0 ? hold_until_sealed : [](Swarm&) {};
      const Seen host = run(config, make_fake_model, prepare);
      const Seen device = run(config, make_resident_model, prepare);
      EXPECT_EQ(device.outcome.exit_code, 0) << device.outcome.sentence;
      EXPECT_EQ(device.taken_back > 0, delay == 0);
      EXPECT_EQ(device.parameters, host.parameters) << delay;
      EXPECT_FALSE(device.parameters.empty());
    }
  }
}

TEST(WireModel, ItsErrorsReachTheStatus) {
  const Seen seen = run(run_of("int4", {1, 1}), make_fake_wire_model);
  EXPECT_NE(seen.status.find("\"forward_codec\":\"int4\",\"forward_error\":0.0"), std::string::npos)
      << seen.status;
}

// 16 KiB take 33 ms: worth a codec of 1 ms, not one of 100 ms, whatever the job itself takes.
TEST(WireModel, AutoGoesByTheTimeItsSamplesMeasured) {
  for (const auto& [codec_time, stays] : {std::pair{1ms, false}, std::pair{100ms, true}}) {
    const MakeModel make_model = [codec_time](const ModelSpec& spec, const StageSpec& stage,
                                              const StageModelOptions&) {
      return Result<std::unique_ptr<StageModel>>(std::make_unique<WireModel>(
          std::make_unique<FakeStageModel>(spec, stage), Duration(codec_time)));
    };
    const Seen seen = run(run_of("auto", {1, 1}), make_model, {}, 500e3);
    EXPECT_EQ(seen.status.find("\"forward_codec\":\"none\"") != std::string::npos, stays)
        << seen.status;
    EXPECT_EQ(seen.status.find("\"backward_codec\":\"none\"") != std::string::npos, stays);
  }
}

// A tile that does not check, in every copy that is sent: whoever sends it has failed.
TEST(WireModel, ACorruptBufferEndsTheSameWay) {
  for (const MessageKind kind : {MessageKind::kForward, MessageKind::kGradient}) {
    const auto corrupt = [kind](Swarm& swarm) {
      swarm.rule([kind](SimNodeId, SimNodeId, const Frame& frame) -> FrameFate {
        if (kind_of(frame) != kind || frame.payload.empty()) return {};
        if (attempt_of(frame)->microbatch != MicrobatchId{{PhaseKind::kTrain, 1}, 3}) return {};
        const BytesView payload = frame.received_payload();
        const_cast<std::byte&>(payload[kWireHeaderBytes + 5]) = std::byte{0x5A};
        return {};
      });
    };
    const RunConfig config = run_of("h8", {1, 3});
    const Seen values = run(config, make_fake_model, corrupt);
    const Seen wire = run(config, make_fake_wire_model, corrupt);
    for (const char* part : {"step 2 microbatch 3 failed on 1 peers; ", "peer 1, stage 0): "})
      EXPECT_NE(wire.outcome.sentence.find(part), std::string::npos) << wire.outcome.sentence;
    EXPECT_EQ(wire.outcome.sentence, values.outcome.sentence);
    EXPECT_EQ(wire.outcome.exit_code, 1);
    EXPECT_EQ(wire.hash, values.hash);
  }
}

}  // namespace
}  // namespace swarmline
