// The full product in the simulator: the swarm's losses and parameters are the reference's.
#include <gtest/gtest.h>

#include "tests/oracle/oracle_case.h"

namespace swarmline::oracle {
namespace {

void expect_agreement(const Factors& factors, DType dtype) {
  const RunConfig config = config_of(factors, dtype);
  const References& references = references_of(config);
  // Another seed for each pipeline: other delays, other orders, other shares.
  const std::uint64_t seed = 100 * factors.stages + factors.peers;
  const Trace swarm = run_swarm(swarm_options(config, seed));
  const Comparison worst = compare(references.reference, swarm, references.bound);
  EXPECT_LE(worst.ratio, 1) << worst.sentence();
  report(factors.name(), dtype, worst);
}

class Oracle : public ::testing::TestWithParam<Factors> {};

TEST_P(Oracle, Float64) {
  expect_agreement(GetParam(), DType::kF64);
}
TEST_P(Oracle, Float32) {
  expect_agreement(GetParam(), DType::kF32);
}

INSTANTIATE_TEST_SUITE_P(FullProduct, Oracle, ::testing::ValuesIn(full_product()),
                         [](const auto& info) { return info.param.name(); });

TEST(OracleProduct, IsTheWholeTable) {
  EXPECT_EQ(full_product().size(), 144U);
}

}  // namespace
}  // namespace swarmline::oracle
