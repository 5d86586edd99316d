#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/store/files.h"
#include "tests/store/temp_folder.h"

namespace swarmline {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class GlobTest : public testing::Test {
 protected:
  GlobTest() {
    for (const char* name : {"b.txt", "a.txt", "c.bin", ".hidden.txt", "sub/d.txt",
                             "sub/deep/e.txt", "sub/.git/f.txt", "x[1].txt"}) {
      folder_.write(name, "x");
    }
  }

  // Matches, without the folder's own path.
  std::vector<std::string> matches(const std::string& pattern) {
    const auto found = glob_files(folder_.at(pattern), 100);
    EXPECT_TRUE(found) << found.error().what;
    std::vector<std::string> names;
    for (const std::string& path : *found) names.push_back(path.substr(folder_.path().size() + 1));
    return names;
  }

  TempFolder folder_;
};

TEST_F(GlobTest, SortedAndWithoutFoldersOrHiddenFiles) {
  EXPECT_THAT(matches("*.txt"), ElementsAre("a.txt", "b.txt", "x[1].txt"));
  EXPECT_THAT(matches("*"), ElementsAre("a.txt", "b.txt", "c.bin", "x[1].txt"));
  EXPECT_THAT(matches("?.[tb]*"), ElementsAre("a.txt", "b.txt", "c.bin"));
  EXPECT_THAT(matches(".hid*"), ElementsAre(".hidden.txt"));
}

TEST_F(GlobTest, StarsInFolders) {
  EXPECT_THAT(matches("*/d.txt"), ElementsAre("sub/d.txt"));
  EXPECT_THAT(matches("s*/*/e.txt"), ElementsAre("sub/deep/e.txt"));
}

TEST_F(GlobTest, TwoStarsDescendAnyNumberOfFolders) {
  EXPECT_THAT(matches("**/*.txt"),
              ElementsAre("a.txt", "b.txt", "sub/d.txt", "sub/deep/e.txt", "x[1].txt"));
  EXPECT_THAT(matches("sub/**"), ElementsAre("sub/d.txt", "sub/deep/e.txt"));
  EXPECT_THAT(matches("**/**/e.txt"), ElementsAre("sub/deep/e.txt"));
}

TEST_F(GlobTest, PlainNameIsItself) {
  EXPECT_THAT(matches("sub/d.txt"), ElementsAre("sub/d.txt"));
  EXPECT_THAT(matches("nothing"), ElementsAre());
  EXPECT_THAT(matches("sub"), ElementsAre());
  EXPECT_THAT(matches("nothing/*.txt"), ElementsAre());
  EXPECT_TRUE(has_wildcard("a/*.txt"));
  EXPECT_FALSE(has_wildcard("a/b.txt"));
}

TEST_F(GlobTest, LinksToFilesCountAndCirclesEnd) {
  std::filesystem::create_symlink(folder_.at("a.txt"), folder_.at("link.txt"));
  std::filesystem::create_directory_symlink(folder_.path(), folder_.at("sub/circle"));
  EXPECT_THAT(matches("link*"), ElementsAre("link.txt"));
  EXPECT_THAT(matches("**/d.txt"), ElementsAre("sub/d.txt"));
}

TEST_F(GlobTest, RefusesTooManyFiles) {
  const auto found = glob_files(folder_.at("**"), 3);
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, ErrorCode::kRefused);
  EXPECT_THAT(found.error().what, HasSubstr("more than the 3 files"));
}

TEST(GlobRelativeTest, StartsAtTheCurrentFolder) {
  const TempFolder folder;
  folder.write("in/a.txt", "x");
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  const auto found = glob_files("in/*.txt", 10);
  const auto descended = glob_files("**/a.txt", 10);
  std::filesystem::current_path(before);
  ASSERT_TRUE(found);
  EXPECT_THAT(*found, ElementsAre("in/a.txt"));
  EXPECT_THAT(*descended, ElementsAre("in/a.txt"));
}

}  // namespace
}  // namespace swarmline
