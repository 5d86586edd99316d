#include "tools/measure/bench_ratio.h"

#include <gtest/gtest.h>

namespace swarmline {
namespace {

constexpr std::uint32_t kHeadWidth = 32;

RatioOptions small_options() {
  RatioOptions options;
  options.config.model.d_model = kHeadWidth;
  options.config.model.heads = 1;
  options.config.batch.microbatch = 2;
  options.rounds = 2;
  options.memory_bytes = 1ULL << 30;
  options.codecs = {CodecSpec{}, *parse_codec("h8")};
  return options;
}

// Every reading is a second after the one before.
SecondsClock counting_clock() {
  return [now = 0.0]() mutable { return now += 1; };
}

const RatioProgress kQuiet = [](const std::string&) {};

TEST(BenchRatio, MeasuresAStageItsCodecsAndItsMessages) {
  std::size_t pieces = 0;
  const auto options = small_options();
  const std::vector<RatioShape> shapes = {{64, 1, 16}, {32, 2, 8}};
  const auto stages =
      measure_ratios(options, shapes, counting_clock(), [&](const std::string&) { ++pieces; });
  ASSERT_TRUE(stages) << stages.error().what;
  EXPECT_EQ(pieces, ratio_pieces(options, shapes));
  ASSERT_EQ(stages->size(), 2U);
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const RatioStage& stage = (*stages)[i];
    const double d = shapes[i].hidden, tokens = shapes[i].sequence, layers = shapes[i].layers;
    EXPECT_EQ(stage.shape, shapes[i]);
    EXPECT_EQ(stage.source, RatioSource::kMeasured);
    EXPECT_EQ(stage.forward_seconds, 1);
    EXPECT_EQ(stage.backward_seconds, 1);
    EXPECT_DOUBLE_EQ(stage.flops, 2 * layers * tokens * (72 * d * d + 6 * tokens * d));
    // 12 d^2 weights, 9 d biases and 4 d of norms a layer.
    EXPECT_EQ(stage.parameters, layers * (12 * d * d + 13 * d));
    EXPECT_DOUBLE_EQ(*stage.product_flops_per_second, 2 * (2 * tokens) * d * (4 * d));
    ASSERT_EQ(stage.wires.size(), 2U);
    const double fp32 = 2 * tokens * d * 4;
    EXPECT_GT(stage.wires[0].forward_bytes, fp32 + 2 * tokens * 2);  // targets of two bytes
    EXPECT_LT(stage.wires[0].forward_bytes, fp32 + 2 * tokens * 2 + 400);
    EXPECT_GT(stage.wires[0].backward_bytes, fp32);
    EXPECT_LT(stage.wires[0].backward_bytes, fp32 + 400);
    EXPECT_LT(stage.wires[1].forward_bytes, stage.wires[0].forward_bytes / 2);
    EXPECT_EQ(stage.wires[1].codec_seconds, 2);
  }
}

TEST(BenchRatio, ModelsWhatTakesTooLongOrDoesNotFit) {
  RatioOptions options = small_options();
  options.seconds = 100;  // of the counting clock: two small stages take 42
  options.codecs.resize(1);
  const std::vector<RatioShape> shapes = {{512, 1, 16}, {32, 1, 16}, {64, 1, 16}};
  auto stages = measure_ratios(options, shapes, counting_clock(), kQuiet);
  ASSERT_TRUE(stages) << stages.error().what;
  const RatioStage& large = (*stages)[0];
  EXPECT_EQ((*stages)[1].source, RatioSource::kMeasured);
  EXPECT_EQ(large.source, RatioSource::kNoTime);
  EXPECT_FALSE(large.product_flops_per_second);
  EXPECT_GT(large.forward_seconds + large.backward_seconds, 2 * 4);
  EXPECT_GT(large.wires[0].forward_bytes, 2U * 16 * 512 * 4);

  options.seconds = 1e9;
  options.memory_bytes = 1 << 20;  // 512: 13 MB of parameters, and their gradients
  stages = measure_ratios(options, shapes, counting_clock(), kQuiet);
  ASSERT_TRUE(stages) << stages.error().what;
  EXPECT_EQ((*stages)[0].source, RatioSource::kNoMemory);
  EXPECT_EQ((*stages)[2].source, RatioSource::kMeasured);
}

TEST(BenchRatio, AnEmulatedDeviceIsHeldAtLeastSoLong) {
  RatioOptions options = small_options();
  options.emulate_forward_seconds = 0.5;  // less than the clock's second
  options.emulate_backward_seconds = 3;
  const auto stages = measure_ratios(options, {{32, 1, 8}}, counting_clock(), kQuiet);
  ASSERT_TRUE(stages) << stages.error().what;
  EXPECT_EQ(stages->front().forward_seconds, 1);
  EXPECT_EQ(stages->front().backward_seconds, 3);
}

TEST(BenchRatio, MistakesAreSaid) {
  RatioOptions options = small_options();
  const auto mistake = [&](const std::vector<RatioShape>& shapes) {
    const auto stages = measure_ratios(options, shapes, counting_clock(), kQuiet);
    EXPECT_FALSE(stages);
    EXPECT_EQ(stages.error().code, ErrorCode::kUserMistake);
    return stages.error().what;
  };
  EXPECT_NE(mistake({{33, 1, 8}}).find("expected a multiple of 32, the width of a head"),
            std::string::npos);
  EXPECT_NE(mistake({{1 << 16, 1, 1 << 20}}).find("expected at most"), std::string::npos);
  options.memory_bytes = 1000;
  EXPECT_NE(mistake({{32, 1, 8}}).find("name smaller sizes"), std::string::npos);
  options = small_options();
  options.device = "abacus";
  EXPECT_NE(mistake({{32, 1, 8}}).find("expected \"cpu\", \"cuda\" or \"cuda:N\""),
            std::string::npos);
}

}  // namespace
}  // namespace swarmline
