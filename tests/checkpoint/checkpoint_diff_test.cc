#include "engine/checkpoint/checkpoint_diff.h"

#include <bit>
#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/small_stages.h"
#include "tests/golden/golden.h"
#include "tests/store/temp_folder.h"

namespace swarmline {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

class CheckpointDiffTest : public testing::Test {
 protected:
  CheckpointDiff diff(const std::string& a, const std::string& b) {
    const auto diff = diff_checkpoints(a, b);
    EXPECT_TRUE(diff) << diff.error().what;
    return *diff;
  }
  // One tensor "t" of raw values.
  template <typename T>
  std::string tensor_file(const char* name, DType dtype, std::vector<T> values) {
    const auto extent = static_cast<std::int64_t>(values.size());
    const SafetensorsLayout layout =
        lay_out_safetensors({{.name = "t", .dtype = dtype, .shape = {extent}}}, {});
    std::string bytes(values.size() * sizeof(T), '\0');
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return folder_.write(name, layout.header + bytes);
  }
  template <typename T>
  TensorDiff compare(DType dtype, std::vector<T> a, std::vector<T> b) {
    return diff(tensor_file("a", dtype, std::move(a)), tensor_file("b", dtype, std::move(b)))
        .tensors.at(0);
  }

  TempFolder folder_;
};

TEST_F(CheckpointDiffTest, MeasuresDifferences) {
  const TensorDiff diff = compare<float>(DType::kF32, {1, -8, 0, 2}, {1, -8.5, 0.25, 2});
  EXPECT_EQ(diff.max_abs, 0.5);
  EXPECT_EQ(diff.max_rel_to_peak, 0.0625);
  EXPECT_EQ(diff.max_rel, 1) << "0 against 0.25";
  EXPECT_EQ(diff.elements_different, 2U);
  EXPECT_FALSE(diff.equal_bits);
  EXPECT_EQ(diff.shape, (std::vector<std::int64_t>{4}));
}

TEST_F(CheckpointDiffTest, SameBitsAndSameNumbers) {
  EXPECT_TRUE(compare<float>(DType::kF32, {1, std::nanf("")}, {1, std::nanf("")}).equal_bits);
  const TensorDiff zeros = compare<float>(DType::kF32, {0.0F}, {-0.0F});
  EXPECT_FALSE(zeros.equal_bits);
  EXPECT_EQ(zeros.max_abs, 0);
  EXPECT_EQ(zeros.elements_different, 0U);
}

TEST_F(CheckpointDiffTest, NonFiniteNumbersDifferInfinitely) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(compare<float>(DType::kF32, {1}, {std::nanf("")}).max_abs, kInfinity);
  EXPECT_EQ(compare<float>(DType::kF32, {infinity}, {-infinity}).max_rel, kInfinity);
  EXPECT_EQ(compare<float>(DType::kF32, {infinity, 1}, {infinity, 2}).max_abs, 1);
  EXPECT_EQ(compare<float>(DType::kF32, {0}, {1}).max_rel_to_peak, kInfinity);
}

TEST_F(CheckpointDiffTest, EveryDtype) {
  EXPECT_EQ(compare<double>(DType::kF64, {1}, {1 + 0x1p-52}).max_abs, 0x1p-52);
  EXPECT_EQ(compare<std::uint16_t>(DType::kF16, {0x3C00}, {0x3C01}).max_abs, 0x1p-10);
  EXPECT_EQ(compare<std::uint16_t>(DType::kF16, {0x0000}, {0x8001}).max_abs, 0x1p-24);
  EXPECT_EQ(compare<std::uint16_t>(DType::kF16, {0x7BFF}, {0}).max_abs, 65504);
  EXPECT_EQ(compare<std::uint16_t>(DType::kF16, {0x7C00}, {0}).max_abs, kInfinity);
  EXPECT_EQ(compare<std::uint16_t>(DType::kBF16, {0x3F80}, {0x3F81}).max_abs, 0x1p-7);
  EXPECT_EQ(compare<std::int8_t>(DType::kI8, {-128}, {127}).max_abs, 255);
  EXPECT_EQ(compare<std::uint8_t>(DType::kU8, {0}, {200}).max_abs, 200);
  EXPECT_EQ(compare<std::uint16_t>(DType::kU16, {0}, {65535}).max_abs, 65535);
  EXPECT_EQ(compare<std::int32_t>(DType::kI32, {INT32_MIN}, {0}).max_abs, 0x1p31);
  EXPECT_EQ(compare<std::uint32_t>(DType::kU32, {UINT32_MAX}, {0}).max_abs, 4294967295.0);
}

TEST_F(CheckpointDiffTest, DifferentDtypesAreComparedAsNumbers) {
  const CheckpointDiff mixed = diff(tensor_file<float>("a", DType::kF32, {0.5F}),
                                    tensor_file<double>("b", DType::kF64, {0.5}));
  EXPECT_FALSE(mixed.equal_bits());
  EXPECT_EQ(mixed.tensors.at(0).max_abs, 0);
  EXPECT_THAT(to_text(mixed), HasSubstr("F32/F64"));
}

TEST_F(CheckpointDiffTest, NumberOfStagesDoesNotMatter) {
  const ParameterLayout whole = small_layout({{"a", {8}}, {"b", {3, 2}}});
  const ParameterLayout first = small_layout({{"a", {8}}});
  const ParameterLayout second = small_layout({{"b", {3, 2}}});
  const Buffer whole_arena = counted_arena(whole, 1);
  const Buffer first_arena = counted_arena(first, 1);
  const Buffer second_arena = counted_arena(second, 101);
  write_checkpoint(folder_.at("one/checkpoints"), 3,
                   {StageFileImage({{.layout = whole, .arena = whole_arena.bytes()}})});
  write_checkpoint(folder_.at("two/checkpoints"), 3,
                   {StageFileImage({{.layout = first, .arena = first_arena.bytes()}}),
                    StageFileImage({{.layout = second, .arena = second_arena.bytes()}})});
  const CheckpointDiff same = diff(folder_.at("one"), folder_.at("two"));
  EXPECT_TRUE(same.equal_bits());
  EXPECT_EQ(same.tensors.size(), 2U);
  EXPECT_EQ(same.path_b, folder_.at("two/checkpoints/step-3"));
}

// Everything a diff can hold, with paths that are the same on every machine.
CheckpointDiff sample() {
  return {.path_a = "runs/a/checkpoints/step-100",
          .path_b = "runs/b/checkpoints/step-100",
          .tensors = {{.name = "h.0.attn.qkv.weight",
                       .shape = {384, 128},
                       .max_abs = 1.25e-7,
                       .max_rel_to_peak = 5e-7,
                       .max_rel = 0.125,
                       .elements_different = 17},
                      {.name = "h.0.ln_1.bias", .shape = {128}, .equal_bits = true},
                      {.name = "scale",
                       .shape = {},
                       .dtype_a = DType::kF32,
                       .dtype_b = DType::kF64,
                       .max_abs = kInfinity,
                       .max_rel_to_peak = kInfinity,
                       .max_rel = kInfinity,
                       .elements_different = 1}},
          .only_in_a = {"h.1.ln_1.bias"},
          .only_in_b = {"lm_head.weight"},
          .mismatches = {{"wte.weight", {257, 128}, {258, 128}}}};
}

TEST(CheckpointDiffFormatTest, GoldenText) {
  expect_golden("checkpoint/diff.txt", to_text(sample()));
}
// A changed file must raise kDiffFormat and docs/formats/checkpoint.md.
TEST(CheckpointDiffFormatTest, GoldenJson) {
  expect_golden("checkpoint/diff.json", to_json(sample()));
}

TEST_F(CheckpointDiffTest, MissingExtraAndMisshapenTensorsAreReported) {
  const auto file = [&](const char* name, std::vector<TensorInfo> tensors) {
    const SafetensorsLayout layout = lay_out_safetensors(std::move(tensors), {});
    return folder_.write(name,
                         layout.header + std::string(layout.bytes - layout.header.size(), '\0'));
  };
  const CheckpointDiff found = diff(file("a", {{.name = "both", .shape = {2}},
                                               {.name = "gone", .shape = {1}},
                                               {.name = "turned", .shape = {2, 3}}}),
                                    file("b", {{.name = "turned", .shape = {3, 2}},
                                               {.name = "both", .shape = {2}},
                                               {.name = "new", .shape = {1}}}));
  EXPECT_FALSE(found.same_tensors());
  EXPECT_FALSE(found.equal_bits());
  EXPECT_THAT(found.only_in_a, ElementsAre("gone"));
  EXPECT_THAT(found.only_in_b, ElementsAre("new"));
  ASSERT_EQ(found.mismatches.size(), 1U);
  EXPECT_EQ(found.mismatches[0].name, "turned");
  EXPECT_EQ(found.mismatches[0].shape_b, (std::vector<std::int64_t>{3, 2}));
}

TEST_F(CheckpointDiffTest, MissingPathIsAnError) {
  EXPECT_EQ(diff_checkpoints(folder_.at("x"), folder_.at("y")).error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace swarmline
