// Models that take and give wire buffers: the run is the one with values, event by event.
#include "tests/pipeline/wire_model.h"

#include <gtest/gtest.h>

#include "tests/pipeline/swarm_harness.h"

namespace swarmline {
namespace {

RunConfig run_of(const char* codec, std::vector<std::uint32_t> peers) {
  RunConfig config = small_run(static_cast<std::uint32_t>(peers.size()), 1);
  config.pipeline.peers = std::move(peers);
  config.model.d_model = 64;
  config.batch.sequence = 16;
  config.codec.forward = config.codec.backward = codec;
  return config;
}

struct Seen {
  RunOutcome outcome;
  std::uint64_t hash = 0;
  std::uint64_t again = 0;  // tensors of attempts other than the first
  std::string status;       // with the codec monitor's errors
  Tensors parameters;
};

Seen run(const RunConfig& config, const MakeModel& make_model,
         std::function<void(Swarm&)> prepare = {}) {
  SimClusterOptions options = swarm_of(config, make_model);
  options.eval_sequences = 4;
  options.link.bytes_per_second = 20e6;
  options.arrival_bytes_min = 1;
  Swarm swarm(std::move(options));
  Seen seen;
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

TEST(WireModel, MakesTheRunOfOneThatTakesValues) {
  for (const char* codec : {"none", "bf16", "h8", "auto"}) {
    for (const bool stochastic : {false, true}) {
      RunConfig config = run_of(codec, {2, 3, 2});
      config.codec.stochastic = stochastic;
      config.wiring.hop_timeout_seconds = 0.02;  // many are sent again
      const Seen values = run(config, make_fake_model);
      const Seen wire = run(config, make_fake_wire_model);
      EXPECT_EQ(wire.outcome.exit_code, 0) << wire.outcome.sentence;
      EXPECT_GT(wire.again, 0U) << codec;
      EXPECT_EQ(wire.hash, values.hash) << codec;
      EXPECT_EQ(wire.status, values.status) << codec;
      EXPECT_EQ(wire.parameters, values.parameters) << codec;
      EXPECT_FALSE(wire.parameters.empty());
    }
  }
}

TEST(WireModel, ItsErrorsReachTheStatus) {
  const Seen seen = run(run_of("int4", {1, 1}), make_fake_wire_model);
  EXPECT_NE(seen.status.find("\"forward_codec\":\"int4\",\"forward_error\":0.0"), std::string::npos)
      << seen.status;
}

// A tile that does not check, in the buffer that the sender keeps: everyone who gets it refuses it.
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
    EXPECT_NE(wire.outcome.sentence.find("checksum of tile 0"), std::string::npos)
        << wire.outcome.sentence;
    EXPECT_EQ(wire.outcome.sentence, values.outcome.sentence);
    EXPECT_EQ(wire.outcome.exit_code, 1);
    EXPECT_EQ(wire.hash, values.hash);
  }
}

}  // namespace
}  // namespace swarmline
