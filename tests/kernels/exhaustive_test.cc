// lin8 and dyn8 over all floats (argument "all"; slow) or over every 4099th (fast).
#include "tests/kernels/exhaustive.h"

#include <string_view>

#include <gtest/gtest.h>

#include "kernels/cpu/quant_path.h"

namespace swarmline::testing {
namespace {

using kernels::QuantFormat;
using kernels::QuantSpec;
using kernels::ScaleKind;

std::uint32_t stride = 4099;  // a prime: all low bits occur

std::vector<ExhaustiveSubject> all_paths() {
  std::vector<ExhaustiveSubject> subjects;
  for (const kernels::QuantPath& path : kernels::quant_paths()) {
    subjects.push_back({path.name, [&path](const QuantSpec& spec, const float* values,
                                           std::size_t n, float* scales, std::uint8_t* codes) {
                          kernels::force_quant_path(&path);
                          const bool bad = kernels::quantize(spec, kernels::FloatKind::kF32, values,
                                                             n, nullptr, scales, codes);
                          kernels::force_quant_path(nullptr);
                          return bad;
                        }});
  }
  return subjects;
}

struct Case {
  QuantFormat format;
  const char* name;
};
class ExhaustiveTest : public ::testing::TestWithParam<Case> {};

TEST_P(ExhaustiveTest, EveryFloatUpToTheAbsmaxOfItsBlock) {
  for (const float absmax : kExhaustiveAbsmax) {
    SCOPED_TRACE(absmax);
    Exhaustive test({GetParam().format, 256, ScaleKind::kF32}, all_paths(), stride);
    test.run(absmax);
    // Both signs of 0 and of what is above, of which the first element of a block is extra.
    EXPECT_GE(test.checked(), 2 * (std::uint64_t{std::bit_cast<std::uint32_t>(absmax)} / stride));
  }
}
TEST_P(ExhaustiveTest, EveryNanAndInfinity) {
  Exhaustive test({GetParam().format, 64, ScaleKind::kF32}, all_paths(), stride);
  test.run_not_finite();
  EXPECT_GE(test.checked(), 2 * 64 * (0x800000ULL / stride));
}

INSTANTIATE_TEST_SUITE_P(Formats, ExhaustiveTest,
                         ::testing::Values(Case{QuantFormat::kLin8, "lin8"},
                                           Case{QuantFormat::kDyn8, "dyn8"},
                                           Case{QuantFormat::kDyn8Unsigned, "dyn8_unsigned"}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace swarmline::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (argc > 1 && std::string_view(argv[1]) == "all") swarmline::testing::stride = 1;
  return RUN_ALL_TESTS();
}
