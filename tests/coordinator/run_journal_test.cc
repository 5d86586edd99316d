#include "pipeline/coordinator/run/run_journal.h"

#include <gtest/gtest.h>

namespace swarmline {
namespace {

TEST(RunJournal, ANewOneHasNoRun) {
  const auto journal = make_memory_journal();
  RunJournal run(*journal);
  EXPECT_EQ(*run.term(), 0U);
  EXPECT_FALSE(run.run_id()->has_value());
  const auto read = run.read();
  ASSERT_TRUE(read.has_value());
  EXPECT_FALSE(read->is_training());
  EXPECT_FALSE(read->has_trained());
  EXPECT_TRUE(read->era_updates_known) << "a run that begins has had no updates";
}

TEST(RunJournal, SaysWhetherItsPeersMayHoldOpenSteps) {
  const auto journal = make_memory_journal();
  RunJournal run(*journal);
  ASSERT_TRUE(run.record_era(Era{2}, 40, 38, "checkpoints/step-40").has_value());
  EXPECT_FALSE(run.read()->is_training());
  ASSERT_TRUE(run.record_started(Era{2}).has_value());
  ASSERT_TRUE(run.record_stopping().has_value());
  auto read = run.read();
  EXPECT_TRUE(read->is_training());
  EXPECT_TRUE(read->stopping);
  EXPECT_EQ(read->era_version, 40U);
  EXPECT_EQ(read->era_updates, 38U);
  EXPECT_EQ(read->checkpoint, "checkpoints/step-40");
  // The next era has not begun to train; peers of the one before may be about.
  ASSERT_TRUE(run.record_era(Era{3}, 40, 38, "checkpoints/step-40").has_value());
  read = run.read();
  EXPECT_FALSE(read->is_training());
  EXPECT_TRUE(read->has_trained());
  ASSERT_TRUE(run.record_ended().has_value());
  EXPECT_FALSE(run.read()->has_trained());
  EXPECT_TRUE(*RunJournal::has_ended(*journal));
  ASSERT_TRUE(run.record_started(Era{3}).has_value());
  EXPECT_FALSE(*RunJournal::has_ended(*journal));
  EXPECT_FALSE(run.read()->stopping) << "it was asked to stop before it began again";
}

TEST(RunJournal, ANewEraHasEvaluatedNothing) {
  const auto journal = make_memory_journal();
  RunJournal run(*journal);
  ASSERT_TRUE(run.record_evaluated(30).has_value());
  EXPECT_EQ(run.read()->evaluated, 30U);
  ASSERT_TRUE(run.record_era(Era{1}, 20, 20, "").has_value());
  EXPECT_EQ(run.read()->evaluated, 0U);
}

TEST(RunJournal, ANumberThatIsNoneIsSaid) {
  const auto journal = make_memory_journal();
  RunJournal run(*journal);
  ASSERT_TRUE(journal->put_meta("era", "seven").has_value());
  const auto read = run.read();
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(read.error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(read.error().what, "the journal's era is \"seven\"");
}

}  // namespace
}  // namespace swarmline
