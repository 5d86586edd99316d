// What only the file form can get wrong: other formats, other programs' files, kills.

#include <signal.h>
#include <sqlite3.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/store/journal.h"
#include "tests/golden/golden.h"
#include "tests/store/temp_folder.h"

namespace swarmline {
namespace {

using testing::HasSubstr;

// Runs SQL as a user would; the rows of its answer, columns joined by '|'.
std::string sql(const std::string& path, const std::string& text) {
  sqlite3* database = nullptr;
  EXPECT_EQ(sqlite3_open(path.c_str(), &database), SQLITE_OK);
  std::string rows;
  const auto add_row = [](void* out, int columns, char** values, char**) {
    for (int i = 0; i < columns; ++i) {
      *static_cast<std::string*>(out) += std::string(i ? "|" : "") + (values[i] ? values[i] : "");
    }
    *static_cast<std::string*>(out) += "\n";
    return 0;
  };
  char* message = nullptr;
  EXPECT_EQ(sqlite3_exec(database, text.c_str(), add_row, &rows, &message), SQLITE_OK) << message;
  sqlite3_free(message);
  sqlite3_close(database);
  return rows;
}

class SqliteJournalTest : public testing::Test {
 protected:
  std::unique_ptr<Journal> open() {
    auto journal = open_sqlite_journal(path_);
    EXPECT_TRUE(journal) << journal.error().what;
    return journal ? std::move(*journal) : nullptr;
  }
  Error refusal() {
    const auto journal = open_sqlite_journal(path_);
    EXPECT_FALSE(journal);
    return journal ? Error{} : journal.error();
  }

  TempFolder folder_;
  std::string path_ = folder_.at("journal.sqlite");
};

TEST_F(SqliteJournalTest, ReopenedKnowsEverything) {
  ASSERT_TRUE(open()->put_meta("term", "3"));
  ASSERT_TRUE(open()->record_commit({.step = 7, .version = 8}));
  EXPECT_EQ(*open()->get_meta("term"), "3");
  EXPECT_EQ((*open()->last_commit())->version, 8U);
}

TEST_F(SqliteJournalTest, PeopleCanQueryItWhileItIsOpen) {
  const auto journal = open();
  ASSERT_TRUE(journal->record_commit(
      {.step = 7, .version = 8, .loss = 2.5, .tokens = 64, .group_digests = {10, 11}}));
  EXPECT_EQ(sql(path_, "SELECT step, version, loss, tokens, group_digests FROM commits"),
            "7|8|2.5|64|000000000000000a 000000000000000b\n");
  EXPECT_EQ(sql(path_, "SELECT value FROM meta WHERE key = 'format'"), "6\n");
  EXPECT_EQ(sql(path_, "PRAGMA journal_mode"), "wal\n");
}

// The schema is the format: a change must raise kJournalFormat and docs/formats/journal.md.
TEST_F(SqliteJournalTest, SchemaIsTheGoldenOne) {
  ASSERT_NE(open(), nullptr);
  expect_golden("journal/schema.sql",
                sql(path_,
                    "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name; "
                    "PRAGMA user_version; PRAGMA application_id"));
}

TEST_F(SqliteJournalTest, NewerFormatIsRefused) {
  ASSERT_NE(open(), nullptr);
  sql(path_, "PRAGMA user_version = 7");
  const Error error = refusal();
  EXPECT_EQ(error.code, ErrorCode::kIncompatible);
  EXPECT_THAT(error.what, HasSubstr("has format 7, and this swarmline knows formats up to 6"));
  EXPECT_THAT(error.what, HasSubstr(path_));
}

TEST_F(SqliteJournalTest, FormatOneGetsItsNewColumns) {
  ASSERT_TRUE(open()->record_commit({.step = 4, .version = 5}));
  sql(path_,
      "ALTER TABLE commits DROP COLUMN era; ALTER TABLE commits DROP COLUMN updates; "
      "ALTER TABLE seats DROP COLUMN key; ALTER TABLE seats DROP COLUMN reach; "
      "ALTER TABLE seats DROP COLUMN name; ALTER TABLE events DROP COLUMN level; "
      "PRAGMA user_version = 1; UPDATE meta SET value = '1' WHERE key = 'format'");
  const auto journal = open();
  EXPECT_EQ((*journal->last_commit())->version, 5U);
  ASSERT_TRUE(journal->record_commit({.step = 5, .version = 6, .era = 2, .updates = 6}));
  EXPECT_EQ((*journal->last_commit())->era, 2U);
  EXPECT_EQ((*journal->last_commit())->updates, 6U);
  EXPECT_EQ(sql(path_, "PRAGMA user_version"), "6\n");
}

TEST_F(SqliteJournalTest, FormatTwoGetsItsKeys) {
  const Seat seat{PeerId{3}, StageId{1}, Incarnation{2}};
  ASSERT_TRUE(open()->record_seat({.seat = seat, .address = "a:1", .state = "active"}));
  sql(path_,
      "ALTER TABLE seats DROP COLUMN key; ALTER TABLE seats DROP COLUMN reach; "
      "ALTER TABLE seats DROP COLUMN name; ALTER TABLE events DROP COLUMN level; "
      "PRAGMA user_version = 2; "
      "UPDATE meta SET value = '2' WHERE key = 'format'");
  const auto journal = open();
  EXPECT_EQ(journal->seats()->at(0).key, "");
  ASSERT_TRUE(
      journal->record_seat({.seat = seat, .address = "a:1", .state = "active", .key = "ab"}));
  EXPECT_EQ(journal->seats()->at(0).key, "ab");
  EXPECT_EQ(sql(path_, "PRAGMA user_version"), "6\n");
}

TEST_F(SqliteJournalTest, FormatThreeGetsWhetherPeersTakeConnections) {
  const SeatRecord record{.seat = {PeerId{3}, StageId{1}, Incarnation{2}},
                          .address = "a:1",
                          .state = "active",
                          .key = "ab",
                          .reach = "no"};
  ASSERT_TRUE(open()->record_seat(record));
  sql(path_,
      "ALTER TABLE seats DROP COLUMN reach; ALTER TABLE seats DROP COLUMN name; "
      "ALTER TABLE events DROP COLUMN level; PRAGMA user_version = 3; "
      "UPDATE meta SET value = '3' WHERE key = 'format'");
  const auto journal = open();
  EXPECT_EQ(journal->seats()->at(0).reach, "");
  EXPECT_EQ(journal->seats()->at(0).key, "ab");
  ASSERT_TRUE(journal->record_seat(record));
  EXPECT_EQ(journal->seats()->at(0), record);
  EXPECT_EQ(sql(path_, "PRAGMA user_version"), "6\n");
}

TEST_F(SqliteJournalTest, FormatFourGetsNamesAndLevels) {
  const SeatRecord record{.seat = {PeerId{3}, StageId{1}, Incarnation{2}},
                          .address = "a:1",
                          .state = "active",
                          .reach = "no",
                          .name = "gpu-box"};
  ASSERT_TRUE(open()->record_seat(record));
  ASSERT_TRUE(open()->record_event(1, "start", ""));
  sql(path_,
      "ALTER TABLE seats DROP COLUMN name; ALTER TABLE events DROP COLUMN level; "
      "PRAGMA user_version = 4; UPDATE meta SET value = '4' WHERE key = 'format'");
  const auto journal = open();
  EXPECT_EQ(journal->seats()->at(0).name, "");
  EXPECT_EQ(journal->seats()->at(0).reach, "no");
  EXPECT_EQ(journal->events(1)->at(0).level, LogLevel::kInfo);
  ASSERT_TRUE(journal->record_seat(record));
  EXPECT_EQ(journal->seats()->at(0), record);
  EXPECT_EQ(sql(path_, "PRAGMA user_version"), "6\n");
}

TEST_F(SqliteJournalTest, OtherDatabasesAreLeftAlone) {
  sql(path_, "CREATE TABLE recipes(name TEXT)");
  const Error error = refusal();
  EXPECT_EQ(error.code, ErrorCode::kIncompatible);
  EXPECT_THAT(error.what, HasSubstr("another program"));
  EXPECT_EQ(sql(path_, "SELECT name FROM sqlite_master"), "recipes\n");
}

TEST_F(SqliteJournalTest, FileThatIsNoDatabase) {
  folder_.write("journal.sqlite", std::string(4096, 'x'));
  const Error error = refusal();
  EXPECT_EQ(error.code, ErrorCode::kIo);
  EXPECT_THAT(error.what, HasSubstr("not a database"));
}

TEST_F(SqliteJournalTest, FolderThatIsNotThere) {
  path_ = folder_.at("no/journal.sqlite");
  const Error error = refusal();
  EXPECT_EQ(error.code, ErrorCode::kIo);
  EXPECT_THAT(error.what, HasSubstr(path_));
}

TEST_F(SqliteJournalTest, TamperedDigestsAreCorrupt) {
  ASSERT_TRUE(open()->record_commit({.step = 1, .group_digests = {1}}));
  sql(path_, "UPDATE commits SET group_digests = 'zz'");
  const auto last = open()->last_commit();
  ASSERT_FALSE(last);
  EXPECT_EQ(last.error().code, ErrorCode::kCorrupt);
}

// The child is killed as soon as it has said that a commit is recorded: that commit must be there.
TEST_F(SqliteJournalTest, WhatWasRecordedOutlivesAKill) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    auto journal = open_sqlite_journal(path_);
    for (std::uint64_t step = 0; journal; ++step) {
      if (!(*journal)->record_commit({.step = step})) break;
      if (::write(ends[1], &step, sizeof step) != sizeof step) break;
    }
    ::_exit(1);
  }
  ::close(ends[1]);
  std::uint64_t said = 0;
  for (int i = 0; i < 5; ++i) ASSERT_EQ(::read(ends[0], &said, sizeof said), sizeof said);
  ::kill(child, SIGKILL);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  ::close(ends[0]);

  const auto last = open()->last_commit();
  ASSERT_TRUE(last && *last);
  EXPECT_GE((*last)->step, said);
}

}  // namespace
}  // namespace swarmline
