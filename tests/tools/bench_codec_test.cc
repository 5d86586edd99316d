#include "tools/measure/bench_codec.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

#include <gtest/gtest.h>

#include "compression/sample_tensors.h"
#include "engine/store/files.h"
#include "tests/golden/golden.h"
#include "tools/measure/bench_codec_report.h"

namespace swarmline {
namespace {

CodecSpec codec_named(const char* name, std::uint32_t block = 0) {
  const auto codec = parse_codec(name, {.block = block});
  EXPECT_TRUE(codec) << name;
  return codec.value_or(CodecSpec{});
}

// Every reading is a second after the one before, so that every measured piece takes one.
SecondsClock counting_clock() {
  return [now = 0.0]() mutable { return now += 1; };
}

TEST(BenchCodec, TimesTheKernelAndTheWireBuffer) {
  for (const char* name :
       {"none", "fp16", "bf16", "lin8", "dyn8", "h8", "fp8", "e5m2", "int4", "h4", "topk"}) {
    for (const DType source : {DType::kF32, DType::kF16, DType::kBF16}) {
      const CodecSpec codec = codec_named(name);
      const std::uint64_t bytes = 4 * 70001;  // more than a tile, no whole number of blocks
      const auto speed = measure_codec_speed(codec, source, bytes, 2, counting_clock());
      ASSERT_TRUE(speed) << name << ": " << speed.error().what;
      EXPECT_EQ(speed->wire_bytes, encoded_bytes(codec, bytes / size_bytes(source), source));
      EXPECT_EQ(speed->copy_seconds, 1);
      EXPECT_EQ(speed->encode_seconds, 1);
      EXPECT_EQ(speed->decode_seconds, 1);
      const bool converts = (codec.kind == CodecKind::kFp16 || codec.kind == CodecKind::kBf16) &&
                            source == DType::kF32;
      EXPECT_EQ(speed->quantize_seconds.has_value(), quant_spec(codec) || converts) << name;
      EXPECT_EQ(speed->dequantize_seconds.has_value(), speed->quantize_seconds.has_value());
    }
  }
}

TEST(BenchCodec, TheBestRoundCounts) {
  // Twice a clock that gains: later pieces seem to take longer.
  const auto slower = [now = 0.0, step = 0.0]() mutable { return now += ++step; };
  const auto speed = measure_codec_speed(codec_named("topk"), DType::kF32, 4096, 3, slower);
  ASSERT_TRUE(speed);
  EXPECT_EQ(speed->copy_seconds, 2);    // readings 1 and 3
  EXPECT_EQ(speed->encode_seconds, 4);  // 6 and 10
  EXPECT_EQ(speed->decode_seconds, 6);  // 15 and 21
}

TEST(BenchCodec, ErrorsAreThoseOfTheDefinition) {
  const BenchTensor tensor{.name = "two", .values = {3.0F, 4.0F}};
  const auto exact = measure_codec_accuracy(codec_named("none"), tensor);
  ASSERT_TRUE(exact);
  EXPECT_EQ(exact->relative_l2, 0);
  EXPECT_DOUBLE_EQ(exact->cosine, 1);
  EXPECT_EQ(exact->max_error, 0);
  EXPECT_EQ(exact->elements, 2);

  // topk keeps one of each 65536 elements here: the 4.
  CodecSpec sparse = codec_named("topk");
  sparse.kept = 1;
  const auto kept = measure_codec_accuracy(sparse, tensor);
  ASSERT_TRUE(kept);
  EXPECT_DOUBLE_EQ(kept->relative_l2, 3.0 / 5.0);
  EXPECT_DOUBLE_EQ(kept->cosine, 4.0 / 5.0);
  EXPECT_DOUBLE_EQ(kept->max_error, 3.0 / 4.0);
}

TEST(BenchCodec, OddTensorsHaveAnErrorToo) {
  const auto none = measure_codec_accuracy(codec_named("h8"), {.name = "none", .values = {}});
  ASSERT_TRUE(none);
  EXPECT_EQ(none->relative_l2, 0);
  EXPECT_EQ(none->bits_per_element, 0);
  const auto zero =
      measure_codec_accuracy(codec_named("h8"), {.name = "zero", .values = {0.0F, 0.0F}});
  ASSERT_TRUE(zero);
  EXPECT_EQ(zero->relative_l2, 0);
  const auto nan = measure_codec_accuracy(codec_named("h8"),
                                          {.name = "nan", .values = {1.0F, std::nanf(""), 2.0F}});
  ASSERT_TRUE(nan);
  EXPECT_TRUE(std::isnan(nan->relative_l2));
  EXPECT_TRUE(std::isnan(nan->max_error));
}

TEST(BenchCodec, SampleTensorsAreWhatTheySay) {
  constexpr std::size_t kRows = 128;
  for (const SampleTensor kind : kSampleTensors) {
    const auto values = make_sample(kind, kRows * kSampleRowChannels, 3);
    EXPECT_TRUE(std::ranges::all_of(values, [](float x) { return std::isfinite(x); }));
    EXPECT_EQ(sample_tensor_from_name(name_of(kind)), kind);
    auto start = make_sample(kind, 1000, 3);
    EXPECT_TRUE(std::ranges::equal(start, std::span(values).first(1000))) << name_of(kind);
    EXPECT_NE(make_sample(kind, 1000, 4), start) << name_of(kind);
  }
  EXPECT_FALSE(sample_tensor_from_name("norml"));

  const auto channels = make_sample(SampleTensor::kOutlierChannels, kRows * kSampleRowChannels, 3);
  int outliers = 0;
  for (std::size_t channel = 0; channel < kSampleRowChannels; ++channel) {
    double squares = 0;
    for (std::size_t row = 0; row < kRows; ++row) {
      squares += std::pow(double{channels[row * kSampleRowChannels + channel]}, 2);
    }
    outliers += std::sqrt(squares / kRows) > 10;
  }
  EXPECT_EQ(outliers, 7);
  const auto massive = make_sample(SampleTensor::kMassiveTokens, kRows * kSampleRowChannels, 3);
  EXPECT_GT(std::ranges::max(massive), 5 * std::ranges::max(channels));
}

CodecBenchReport small_report() {
  return {.machine = "A processor, fast",
          .instruction_set = "avx512",
          .wall_seconds = 1750000000,
          .rounds = 7,
          .speeds = {{.codec = codec_named("lin8", 64),
                      .source = DType::kBF16,
                      .tensor_bytes = 2'000'000'000,
                      .wire_bytes = 1'062'500'000,
                      .copy_seconds = 0.25,
                      .encode_seconds = 0.5,
                      .decode_seconds = 0.4,
                      .quantize_seconds = 0.125,
                      .dequantize_seconds = 0.25},
                     {.codec = codec_named("topk"),
                      .source = DType::kF32,
                      .tensor_bytes = 4'000'000'000,
                      .wire_bytes = 80'000'000,
                      .copy_seconds = 0.5,
                      .encode_seconds = 4,
                      .decode_seconds = 1,
                      .quantize_seconds = {},
                      .dequantize_seconds = {}}},
          .accuracies = {{.codec = codec_named("h8"),
                          .tensor = "a \"b\", c",
                          .elements = 65536,
                          .bits_per_element = 8.5,
                          .relative_l2 = 0.0059375,
                          .cosine = 0.9999824,
                          .max_error = 0.0078125},
                         {.codec = codec_named("fp8"),
                          .tensor = "broken",
                          .elements = 2,
                          .bits_per_element = 8.25,
                          .relative_l2 = std::numeric_limits<double>::quiet_NaN(),
                          .cosine = std::numeric_limits<double>::quiet_NaN(),
                          .max_error = std::numeric_limits<double>::quiet_NaN()}}};
}

TEST(BenchCodecReport, JsonAndCsvAreTheGoldenOnes) {
  expect_golden("bench/codec.json", to_json(small_report()));
  expect_golden("bench/codec.csv", to_csv(small_report()));
}

TEST(BenchCodecReport, EveryCsvRowHasEveryColumn) {
  std::istringstream lines(to_csv(small_report()));
  std::string head;
  std::getline(lines, head);
  const auto columns = std::ranges::count(head, ',');
  int rows = 0;
  for (std::string line; std::getline(lines, line); ++rows) {
    bool quoted = false;
    long commas = 0;
    for (const char c : line) {
      if (c == '"') quoted = !quoted;
      commas += c == ',' && !quoted;
    }
    EXPECT_EQ(commas, columns) << line;
  }
  EXPECT_EQ(rows, 4);
}

TEST(BenchCodecReport, TablesAreAligned) {
  CodecBenchReport report = small_report();
  report.accuracies.push_back(report.accuracies.front());
  report.accuracies.back().tensor = "parameter_gradient.layers.4.mlp.up.weight";
  const auto last_line = [](const std::string& text) {
    return text.substr(text.rfind('\n') + 1).size();
  };
  for (const CodecSpeed& speed : report.speeds) {
    EXPECT_EQ(speed_line(speed).size(), last_line(speed_head(64))) << speed_line(speed);
  }
  for (const CodecAccuracy& accuracy : report.accuracies) {
    EXPECT_EQ(accuracy_line(accuracy).size(), last_line(accuracy_head()))
        << accuracy_line(accuracy);
  }
  EXPECT_NE(speed_line(report.speeds[0]).find("16.00"), std::string::npos);  // 2 GB in 0.125 s
  EXPECT_NE(speed_line(report.speeds[0]).find("2.00x"), std::string::npos);
}

TEST(BenchCodec, CapturedTensorsAreThere) {
  const std::string path =
      std::string(SWARMLINE_SOURCE_DIR) + "/bench/tensors/quickstart.safetensors";
  const auto tensors = read_bench_tensors(path);
  ASSERT_TRUE(tensors) << tensors.error().what;
  EXPECT_LT(*file_bytes(path), 1U << 20);
  int activations = 0, gradients = 0;
  for (const BenchTensor& tensor : *tensors) {
    activations += tensor.name.starts_with("activation.");
    gradients += tensor.name.find("gradient.") != std::string::npos;
    // A gross measure that the tensors are real numbers of a trained model, not zeros or noise.
    const auto h8 = measure_codec_accuracy(codec_named("h8"), tensor);
    ASSERT_TRUE(h8);
    EXPECT_LT(h8->relative_l2, 0.0065) << tensor.name;
    EXPECT_GT(h8->relative_l2, 0.002) << tensor.name;
  }
  EXPECT_GE(activations, 2);
  EXPECT_GE(gradients, 4);
}

TEST(BenchCodec, FilesWithoutTensorsAreMistakes) {
  EXPECT_FALSE(read_bench_tensors("no such file.safetensors"));
}

}  // namespace
}  // namespace swarmline
