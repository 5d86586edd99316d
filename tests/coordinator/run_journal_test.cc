#include "pipeline/coordinator/run/run_journal.h"

#include <memory>

#include <gtest/gtest.h>

#include "sim/doors/sim_runtime.h"

namespace swarmline {
namespace {

// A journal in memory, and the way into it.
struct Kept {
  SimRuntime clock{1};
  std::unique_ptr<Journal> journal = make_memory_journal();
  ImmediateJournal immediate{*journal};
  JournalWriter writer{clock.node(0), immediate, [] {}};
};

TEST(RunJournal, ANewOneHasNoRun) {
  Kept kept;
  RunJournal run(kept.writer);
  EXPECT_EQ(*run.term(), 0U);
  EXPECT_FALSE(run.run_id()->has_value());
  const auto read = run.read();
  ASSERT_TRUE(read.has_value());
  EXPECT_FALSE(read->is_training());
  EXPECT_FALSE(read->has_trained());
  EXPECT_TRUE(read->era_updates_known) << "a run that begins has had no updates";
}

TEST(RunJournal, SaysWhetherItsPeersMayHoldOpenSteps) {
  Kept kept;
  RunJournal run(kept.writer);
  run.record_era(Era{2}, 40, 38, "checkpoints/step-40");
  kept.writer.flush();
  EXPECT_FALSE(run.read()->is_training());
  run.record_started(Era{2});
  kept.writer.flush();
  run.record_stopping();
  kept.writer.flush();
  auto read = run.read();
  EXPECT_TRUE(read->is_training());
  EXPECT_TRUE(read->stopping);
  EXPECT_EQ(read->era_version, 40U);
  EXPECT_EQ(read->era_updates, 38U);
  EXPECT_EQ(read->checkpoint, "checkpoints/step-40");
  // The next era has not begun to train; peers of the one before may be about.
  run.record_era(Era{3}, 40, 38, "checkpoints/step-40");
  kept.writer.flush();
  read = run.read();
  EXPECT_FALSE(read->is_training());
  EXPECT_TRUE(read->has_trained());
  run.record_ended();
  kept.writer.flush();
  EXPECT_FALSE(run.read()->has_trained());
  EXPECT_TRUE(*RunJournal::has_ended(*kept.journal));
  run.record_started(Era{3});
  kept.writer.flush();
  EXPECT_FALSE(*RunJournal::has_ended(*kept.journal));
  EXPECT_FALSE(run.read()->stopping) << "it was asked to stop before it began again";
}

TEST(RunJournal, ANewEraHasEvaluatedNothing) {
  Kept kept;
  RunJournal run(kept.writer);
  run.record_evaluated(30);
  kept.writer.flush();
  EXPECT_EQ(run.read()->evaluated, 30U);
  run.record_era(Era{1}, 20, 20, "");
  kept.writer.flush();
  EXPECT_EQ(run.read()->evaluated, 0U);
}

TEST(RunJournal, SegmentsAreReadInTheirOrder) {
  Kept kept;
  RunJournal run(kept.writer);
  EXPECT_TRUE(run.read()->segments.empty()) << "as of a journal of format 5";
  RunSegment segment;
  segment.config.data.files = {"x"};
  for (std::uint32_t number = 1; number <= 11; ++number) {
    segment.number = number;
    segment.first_version = 10 * number;
    run.record_segment(segment);
  }
  kept.writer.flush();
  const auto read = run.read();
  ASSERT_TRUE(read) << read.error().what;
  ASSERT_EQ(read->segments.size(), 11U);
  EXPECT_EQ(read->segments[10].number, 11U);
  EXPECT_EQ(read->segments[10].first_version, 110U);
  ASSERT_TRUE(kept.journal->put_meta("segment-2", "?"));
  EXPECT_EQ(run.read().error().code, ErrorCode::kCorrupt);
}

TEST(RunJournal, ANumberThatIsNoneIsSaid) {
  Kept kept;
  RunJournal run(kept.writer);
  ASSERT_TRUE(kept.journal->put_meta("era", "seven").has_value());
  const auto read = run.read();
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(read.error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(read.error().what, "the journal's era is \"seven\"");
}

}  // namespace
}  // namespace swarmline
