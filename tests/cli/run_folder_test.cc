#include "cli/run_folder.h"

#include <filesystem>
#include <stdlib.h>

#include <gtest/gtest.h>

#include "engine/store/files.h"

namespace swarmline {
namespace {

namespace fs = std::filesystem;

class RunFolderTest : public ::testing::Test {
 protected:
  RunFolderTest() {
    std::string pattern = (fs::temp_directory_path() / "swarmline-folder-XXXXXX").string();
    EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  ~RunFolderTest() override { fs::remove_all(root_); }

  std::string root_;
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
