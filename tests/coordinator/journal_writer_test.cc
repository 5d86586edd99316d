#include "pipeline/coordinator/run/journal_writer.h"

#include <gtest/gtest.h>

#include "pipeline/protocol/knobs.h"
#include "sim/doors/sim_journal.h"
#include "tests/harness/mark_expected.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

// Counts transactions, and is what a coordinator would be.
class Counted final : public AsyncJournal {
 public:
  Counted(SimRuntime& runtime, SimJournal& journal)
      : journal_(journal), link_(runtime, 0, journal.disk(), journal) {}
  std::size_t transactions = 0;

 protected:
  void begin(Task task, Done done) override {
    ++transactions;
    link_.run(std::move(task), std::move(done));
  }
  Journal& journal() override { return journal_; }

 private:
  SimJournal& journal_;
  SimJournalLink link_;
};

class JournalWriterTest : public testing::Test {
 protected:
  void pass(Duration time) { clock_.run_for(time); }
  static JournalRecord meta(const std::string& key, const std::string& value = "1") {
    return MetaRecord{.key = key, .value = value};
  }
  bool has(const std::string& key) { return journal_.get_meta(key)->has_value(); }

  SimRuntime clock_{1};
  SimJournal journal_{clock_};
  Counted way_{clock_, journal_};
  int changes_ = 0;
  JournalWriter writer_{clock_.node(0), way_, [this] { ++changes_; }};
};

TEST_F(JournalWriterTest, WhatIsGivenTogetherGoesTogether) {
  const MarkExpected grouped("journal_writer.grouped");
  journal_.disk().time = 10ms;
  writer_.give(meta("a"));
  writer_.give(meta("b"));
  writer_.note(EventRecord{.kind = "said"});
  writer_.flush();
  writer_.give(meta("c"));
  writer_.flush();
  EXPECT_EQ(writer_.progress().given, 3U);
  EXPECT_EQ(writer_.progress().durable, 0U);
  pass(11ms);
  EXPECT_EQ(writer_.progress().durable, 2U) << "an event is not counted";
  EXPECT_EQ(changes_, 1);
  pass(11ms);
  EXPECT_EQ(writer_.progress().durable, 3U);
  EXPECT_EQ(way_.transactions, 2U);
  EXPECT_EQ(journal_.events(10)->size(), 1U);
}

TEST_F(JournalWriterTest, ATransactionIsBounded) {
  for (std::size_t i = 0; i < 2 * kJournalBatchMax + 1; ++i) writer_.give(meta(std::to_string(i)));
  writer_.flush();
  EXPECT_EQ(way_.transactions, 3U);
  EXPECT_EQ(writer_.progress().durable, 2 * kJournalBatchMax + 1);
}

TEST_F(JournalWriterTest, WhatFailsIsTriedAgainInOrder) {
  const MarkExpected trouble("journal_writer.trouble");
  journal_.disk().fails = "full";
  writer_.give(meta("a", "1"));
  writer_.flush();
  pass(1ms);
  EXPECT_EQ(writer_.take_news().fails, "full");
  EXPECT_FALSE(writer_.take_news().fails) << "said once";
  ASSERT_TRUE(writer_.trouble());
  EXPECT_TRUE(writer_.is_late(clock_.now()));
  writer_.give(meta("a", "2"));
  writer_.flush();
  pass(10s);
  EXPECT_GT(writer_.trouble()->tries, 5U);
  EXPECT_LT(writer_.trouble()->tries, 12U) << "it pauses, for longer and longer";
  EXPECT_EQ(writer_.progress().durable, 0U);
  EXPECT_GE(writer_.wait(clock_.now()), 10s);
  journal_.disk().fails.reset();
  pass(knobs().journal_retry_max);
  EXPECT_EQ(writer_.progress().durable, 2U);
  EXPECT_EQ(*journal_.get_meta("a"), "2");
  EXPECT_FALSE(writer_.trouble());
  EXPECT_FALSE(writer_.is_late(clock_.now()));
  EXPECT_GE(writer_.take_news().well_after, 10s);
}

TEST_F(JournalWriterTest, ASilentStoreIsAskedAgain) {
  journal_.disk().silent = true;
  for (const char* key : {"a", "b", "c", "d"}) {
    writer_.give(meta(key));
    writer_.flush();
  }
  pass(knobs().journal_late * 2);
  EXPECT_TRUE(writer_.is_late(clock_.now())) << "before anything has failed";
  pass(20s);
  EXPECT_EQ(writer_.progress().durable, 0U);
  journal_.disk().silent = false;
  pass(10s);
  EXPECT_EQ(writer_.progress().durable, 4U);
  EXPECT_TRUE(has("d"));
}

TEST_F(JournalWriterTest, NotesAreBounded) {
  journal_.disk().fails = "full";
  for (std::size_t i = 0; i < 2 * JournalWriter::kNotesMax; ++i)
    writer_.note(EventRecord{.kind = "said"});
  writer_.flush();
  pass(1ms);
  journal_.disk().fails.reset();
  pass(1s);
  EXPECT_EQ(journal_.events(10'000)->size(), JournalWriter::kNotesMax);
}

// Not before its beginning is there may anybody be answered.
TEST_F(JournalWriterTest, AReignIsLateUntilItsBeginningIsWritten) {
  journal_.disk().time = 10ms;
  writer_.give(meta("term"));
  writer_.opened();
  writer_.flush();
  EXPECT_TRUE(writer_.is_late(clock_.now()));
  pass(11ms);
  EXPECT_FALSE(writer_.is_late(clock_.now()));
}

// Says that another leads.
class Refusing final : public AsyncJournal {
 protected:
  void begin(Task /*task*/, Done done) override {
    done(fail(ErrorCode::kRefused, "another leads"));
  }
  Journal& journal() override { return *journal_; }

 private:
  std::unique_ptr<Journal> journal_ = make_memory_journal();
};

TEST_F(JournalWriterTest, WhoDoesNotLeadWritesNothingMore) {
  Refusing refusing;
  JournalWriter writer(clock_.node(0), refusing, [this] { ++changes_; });
  writer.give(meta("a"));
  writer.flush();
  EXPECT_EQ(changes_, 1);
  ASSERT_TRUE(writer.refused());
  EXPECT_EQ(writer.refused()->what, "another leads");
  EXPECT_FALSE(writer.trouble());
  writer.flush();
  pass(10s);
  EXPECT_EQ(changes_, 1);
}

}  // namespace
}  // namespace swarmline
