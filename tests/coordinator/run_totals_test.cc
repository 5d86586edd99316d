// What a run has cost goes through the journal's text and back.
#include "pipeline/coordinator/run/run_totals.h"

#include <gtest/gtest.h>

#include "pipeline/coordinator/run/run_stats.h"

namespace swarmline {
namespace {

RunTotals some_totals() {
  RunTotals totals{.since_version = 3,
                   .seconds = 12.5,
                   .reduce_bytes = 1,
                   .second_tries = 2,
                   .control_bytes = 3,
                   .checkpoint_bytes = 4,
                   .held_out_loss = 5.5,
                   .losses = {7.25, 6.125},
                   .boundaries = std::vector<BoundaryTotals>(2),
                   .cost = CostTotals{.since_version = 1,
                                      .machines = 1.5,
                                      .coordinator = 2.5,
                                      .egress = 3.5,
                                      .waiting = 0.5,
                                      .joining = 0.25,
                                      .idle = 0.125,
                                      .again = 0.75,
                                      .fetched = 0.375,
                                      .egress_bytes = 5,
                                      .joiner_bytes = 6,
                                      .shadow_bytes = 7,
                                      .steps_again = 8}};
  totals.boundaries[0] = {.forward_codec = 1,
                          .forward_tokens = 2,
                          .forward_framing = 3,
                          .backward_codec = 4,
                          .backward_framing = 5,
                          .forward_messages = 6,
                          .backward_messages = 7,
                          .early_tries = 8};
  return totals;
}

TEST(RunTotals, TheTextSaysTheSame) {
  const auto read = parse_run_totals(to_text(some_totals()));
  ASSERT_TRUE(read) << read.error().what;
  EXPECT_EQ(*read, some_totals());
  EXPECT_EQ(*parse_run_totals(to_text(RunTotals())), RunTotals());
}

TEST(RunTotals, OtherTextsAreRefused) {
  EXPECT_EQ(parse_run_totals("").error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(parse_run_totals("{}").error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(parse_run_totals("{\"format\":2}").error().code, ErrorCode::kIncompatible);
}

TEST(RunTotals, ALongListOfLossesIsCut) {
  std::string losses;
  for (int i = 0; i < 1000; ++i) losses += i > 0 ? ",1" : "1";
  const auto read = parse_run_totals("{\"format\":1,\"losses\":[" + losses + "]}");
  ASSERT_TRUE(read);
  EXPECT_EQ(read->losses.size(), RunTotals::kLossesShown);
}

// It was resumed with other stages: bytes of boundaries that are no more say nothing.
TEST(RunTotals, ARunThatIsCutAnewCountsItsBoundariesAnew) {
  RunStats stats(3);
  stats.restore(some_totals());
  EXPECT_EQ(stats.totals().boundaries, std::vector<BoundaryTotals>(3));
  EXPECT_EQ(stats.totals().seconds, 12.5);
}

}  // namespace
}  // namespace swarmline
