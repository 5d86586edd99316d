// Wire bytes: what a run reports of every boundary is what its codecs make, and little more.
#include <gtest/gtest.h>

#include "compression/codec.h"
#include "tests/swarm/swarm_process.h"

namespace swarmline {
namespace {

constexpr double kFramingMax = 0.01;  // of the codec's bytes
constexpr std::uint64_t kSteps = 3, kMicrobatches = 4, kRows = 2, kSequence = 256, kWidth = 96;
constexpr std::uint64_t kTokenBytes = 2;  // a target token of a vocabulary up to 65536

class SwarmBytes : public testing::TestWithParam<const char*> {};

TEST_P(SwarmBytes, AreTheCodecsBytesAndLittleFraming) {
  const std::string codec = GetParam();
  const SwarmFolder swarm({"run.steps=3", "batch.sequence=256", "model.d_model=96",
                           "pipeline.stages=3", "codec.forward=" + codec,
                           "codec.backward=" + codec});
  const Ended ended = swarm.launch();
  ASSERT_EQ(ended.code, 0) << ended.output << swarm.logs();
  const auto status = swarm.status();
  ASSERT_TRUE(status);
  ASSERT_EQ(status->boundaries.size(), 2U);

  const auto spec = parse_codec(codec);
  ASSERT_TRUE(spec.has_value());
  const std::uint64_t each = encoded_bytes(*spec, kRows * kSequence * kWidth, DType::kF32);
  const std::uint64_t codec_bytes = each * kSteps * kMicrobatches;
  for (const BoundaryStatus& boundary : status->boundaries) {
    EXPECT_EQ(boundary.microbatches, kSteps * kMicrobatches);
    EXPECT_EQ(boundary.gradients, kSteps * kMicrobatches);
    EXPECT_EQ(boundary.forward_codec_bytes, codec_bytes);
    EXPECT_EQ(boundary.backward_codec_bytes, codec_bytes);
    EXPECT_EQ(boundary.forward_token_bytes,
              kSteps * kMicrobatches * kRows * kSequence * kTokenBytes);
    for (const std::uint64_t framing :
         {boundary.forward_framing_bytes, boundary.backward_framing_bytes}) {
      EXPECT_GT(framing, 0U);
      EXPECT_LE(static_cast<double>(framing), kFramingMax * static_cast<double>(codec_bytes));
    }
  }

  // The log tells the same, step by step.
  std::uint64_t forward = 0, backward = 0;
  for (const JsonValue& step : swarm.log("step")) {
    const JsonValue& boundary = step["boundaries"].items.at(1);
    EXPECT_EQ(boundary["from"].count(), 1U);
    forward += boundary["forward_bytes"].count();
    backward += boundary["backward_bytes"].count();
  }
  const BoundaryStatus& last = status->boundaries[1];
  EXPECT_EQ(forward,
            last.forward_codec_bytes + last.forward_token_bytes + last.forward_framing_bytes);
  EXPECT_EQ(backward, last.backward_codec_bytes + last.backward_framing_bytes);
}

INSTANTIATE_TEST_SUITE_P(Codecs, SwarmBytes,
                         testing::Values("none", "fp16", "bf16", "lin8", "h8", "h4"),
                         [](const auto& codec) { return std::string(codec.param); });

}  // namespace
}  // namespace swarmline
