#include "node/run_folder.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "engine/checkpoint/checkpoint_writer.h"
#include "engine/checkpoint/sha256.h"
#include "engine/config/begun_run.h"
#include "engine/config/load.h"
#include "engine/store/files.h"
#include "engine/store/journal.h"
#include "node/dead_run.h"
#include "tests/store/temp_folder.h"

namespace swarmline {
namespace {

namespace fs = std::filesystem;

class RunFolderTest : public ::testing::Test {
 protected:
  const TempFolder temp_;
  const std::string root_ = temp_.path();
};

TEST_F(RunFolderTest, IsMadeOnceAndNeverWrittenOver) {
  const RunFolder folder(root_ + "/runs/a");
  ASSERT_TRUE(folder.prepare("first", false));
  EXPECT_EQ(*read_text_file(folder.config(), 100), "first");
  EXPECT_TRUE(fs::is_directory(folder.checkpoints()));
  EXPECT_TRUE(fs::is_directory(folder.logs()));

  const auto again = folder.prepare("second", false);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, ErrorCode::kUserMistake);
  EXPECT_NE(again.error().what.find("--fresh"), std::string::npos);
  EXPECT_EQ(*read_text_file(folder.config(), 100), "first");
}

TEST_F(RunFolderTest, FreshMovesTheOldOnesAside) {
  const RunFolder folder(root_ + "/a");
  for (const char* text : {"first", "second", "third"}) ASSERT_TRUE(folder.prepare(text, true));
  EXPECT_EQ(*read_text_file(folder.config(), 100), "third");
  EXPECT_EQ(*read_text_file(root_ + "/a.1/config.toml", 100), "first");
  EXPECT_EQ(*read_text_file(root_ + "/a.2/config.toml", 100), "second");
}

RunConfig config_of(std::uint64_t steps) {
  RunConfig config;
  config.run.steps = steps;
  config.data.files = {"text"};
  return config;
}

// Its coordinator ended before anybody came: nothing says when.
TEST_F(RunFolderTest, ADeadRunOfWhichNothingWasHeardHasAWholeSentence) {
  const RunFolder folder(root_ + "/a");
  ASSERT_TRUE(folder.prepare(to_toml(config_of(10)), false));
  ASSERT_TRUE(open_sqlite_journal(folder.journal()));
  const auto status = status_of_dead_run(folder);
  ASSERT_TRUE(status) << status.error().what;
  EXPECT_TRUE(status->sentence.starts_with("died before its first step was done; there is no "))
      << status->sentence;
}

// A checkpoint of `step` with nothing in it.
void write_checkpoint(const RunFolder& folder, std::uint64_t step, bool optimizer_state) {
  ASSERT_TRUE(make_folders(folder.checkpoints()));
  auto writer = CheckpointWriter::begin(folder.checkpoints(), step, 1);
  ASSERT_TRUE(writer);
  const std::string empty(8, ' ');
  ASSERT_TRUE(writer->write_piece(0, 0, as_bytes(empty)));
  ASSERT_TRUE(writer->finish_stage(0, empty.size(), sha256_hex(as_bytes(empty))));
  Manifest manifest;
  manifest.version = step;
  manifest.optimizer_state = optimizer_state;
  manifest.stages.push_back({.last_layer = manifest.model.layers});
  ASSERT_TRUE(writer->commit(std::move(manifest)));
}

TEST_F(RunFolderTest, ARunGoesOnWithTheSameConfig) {
  const RunFolder folder(root_ + "/a");
  EXPECT_EQ(*folder.prepare_or_resume(config_of(10), false), RunStart::kNew);
  // Killed before there was a journal: it has not begun.
  EXPECT_EQ(*folder.prepare_or_resume(config_of(10), false), RunStart::kNew);
  ASSERT_TRUE(write_text_file_atomically(folder.journal(), ""));
  ASSERT_TRUE(write_text_file_atomically(folder.status(), "{}"));
  ASSERT_TRUE(folder.write_address({.host = "127.0.0.1", .port = 1}));
  EXPECT_EQ(*folder.prepare_or_resume(config_of(10), false), RunStart::kResumes);
  EXPECT_FALSE(folder.final_status()) << "of how it ended before";
  EXPECT_FALSE(folder.read_address()) << "where nobody listens any more";

  write_checkpoint(folder, 10, true);
  EXPECT_EQ(*folder.prepare_or_resume(config_of(10), false), RunStart::kFinished);
  EXPECT_EQ(*folder.prepare_or_resume(config_of(20), false), RunStart::kResumes);
  EXPECT_NE(read_text_file(folder.config(), 1 << 20)->find("steps = 20"), std::string::npos);

  RunConfig other = config_of(20);
  other.net.heartbeat_seconds = 1;
  other.pipeline.peers = {3};
  EXPECT_EQ(*folder.prepare_or_resume(other, false), RunStart::kResumes);
  other.run.seed = 2;
  const auto refused = folder.prepare_or_resume(other, false);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUserMistake);
  EXPECT_NE(refused.error().what.find("run.seed: found 2, but the run began with 1"),
            std::string::npos)
      << refused.error().what;
  EXPECT_EQ(*folder.prepare_or_resume(other, true), RunStart::kNew);
  EXPECT_TRUE(fs::exists(root_ + "/a.1/journal.sqlite"));
}

TEST_F(RunFolderTest, ARunWithoutWhatItTakesIsNotGoneOnWith) {
  const RunFolder folder(root_ + "/a");
  ASSERT_TRUE(folder.prepare_or_resume(config_of(10), false));
  ASSERT_TRUE(write_text_file_atomically(folder.log(), ""));
  const auto reference = folder.prepare_or_resume(config_of(10), false);
  ASSERT_FALSE(reference);
  EXPECT_NE(reference.error().what.find("without a journal"), std::string::npos);
  ASSERT_TRUE(write_text_file_atomically(folder.journal(), ""));
  write_checkpoint(folder, 5, false);
  const auto bare = folder.prepare_or_resume(config_of(10), false);
  ASSERT_FALSE(bare);
  EXPECT_NE(bare.error().what.find("step-5 holds no optimizer state"), std::string::npos);
}

// Learned boundaries are parameters where the cut is.
TEST(FixedDifference, TheCutMayChangeWithoutLearnedBoundaries) {
  RunConfig begun = config_of(10), wanted = begun;
  wanted.pipeline.stages = 2;
  wanted.pipeline.peers = {1, 1};
  EXPECT_EQ(fixed_difference(begun, wanted), std::nullopt);
  begun.model.boundary = wanted.model.boundary = BoundaryKind::kMaxout;
  EXPECT_EQ(fixed_difference(begun, wanted), "pipeline.stages: found 2, but the run began with 1");
}

TEST_F(RunFolderTest, FindsRunsByFolderOrAddress) {
  const RunFolder folder(root_ + "/a");
  ASSERT_TRUE(folder.prepare("text", false));
  auto by_folder = find_run(root_ + "/a/");
  ASSERT_TRUE(by_folder);
  EXPECT_EQ(by_folder->folder->path(), root_ + "/a");
  const auto not_running = live_address(*by_folder);
  ASSERT_FALSE(not_running);
  EXPECT_NE(not_running.error().what.find("no coordinator"), std::string::npos);

  ASSERT_TRUE(folder.write_address({.host = "127.0.0.1", .port = 7400}));
  EXPECT_EQ(live_address(*by_folder)->port, 7400);
  folder.remove_address();
  EXPECT_FALSE(live_address(*by_folder));

  EXPECT_EQ(live_address(*find_run("127.0.0.1:99"))->port, 99);
  EXPECT_FALSE(find_run(root_));
  EXPECT_FALSE(find_run("no such thing"));
}

}  // namespace
}  // namespace swarmline
