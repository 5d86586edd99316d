// The formulas that the device's kernels share with this test, against double precision.
#include "engine/model/swiglu.h"

#include <cmath>

#include <gtest/gtest.h>

namespace swarmline {
namespace {

double exactly(double gate, double up) {
  return gate / (1 + std::exp(-gate)) * up;
}

TEST(SwiGlu, IsSiluTimesUpAndItsGradientIsItsSlope) {
  constexpr double kStep = 1e-5;
  for (const double gate : {-30.0, -4.0, -1.278, -0.1, 0.0, 0.3, 2.0, 17.0}) {
    for (const double up : {-3.0, 0.0, 0.5, 8.0}) {
      const double scale = 1 + std::abs(gate * up);
      EXPECT_NEAR(swiglu_of(static_cast<float>(gate), static_cast<float>(up)), exactly(gate, up),
                  1e-6 * scale);
      const SwiGluGradient gradient =
          swiglu_gradient_of(static_cast<float>(gate), static_cast<float>(up), 2.0F);
      const double by_gate = (exactly(gate + kStep, up) - exactly(gate - kStep, up)) / (2 * kStep);
      const double by_up = (exactly(gate, up + kStep) - exactly(gate, up - kStep)) / (2 * kStep);
      EXPECT_NEAR(gradient.gate, 2 * by_gate, 1e-5 * scale) << gate << " " << up;
      EXPECT_NEAR(gradient.up, 2 * by_up, 1e-5 * scale) << gate << " " << up;
    }
  }
}

TEST(SwiGlu, FarAwayItIsFlatOrStraight) {
  EXPECT_EQ(swiglu_of(-1000.0F, 5.0F), 0.0F);
  EXPECT_EQ(swiglu_gradient_of(-1000.0F, 5.0F, 1.0F).gate, 0.0F);
  EXPECT_EQ(swiglu_of(1000.0F, 5.0F), 5000.0F);
  EXPECT_EQ(swiglu_gradient_of(1000.0F, 5.0F, 1.0F).gate, 5.0F);
  EXPECT_TRUE(std::isnan(swiglu_of(NAN, 1.0F)));
}

}  // namespace
}  // namespace swarmline
