// What a coordinator's config may name, and a peer does not read.
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "engine/data/token_dataset.h"
#include "engine/store/files.h"
#include "tests/store/temp_folder.h"

namespace swarmline {
namespace {

namespace fs = std::filesystem;

class DataRoot : public ::testing::Test {
 protected:
  DataRoot() {
    for (const char* folder : {"/data/deep", "/home/.ssh", "/data-too"})
      fs::create_directories(temp_.path() + folder);
    for (const char* file : {"/data/a.txt", "/data/deep/b.txt", "/home/.ssh/id", "/data-too/c.txt"})
      std::ofstream(temp_.path() + file) << std::string(200, 'x');
    fs::create_symlink(temp_.path() + "/home/.ssh/id", root_ + "/link.txt");
    fs::create_directory_symlink(temp_.path() + "/home/.ssh", root_ + "/folder");
    fs::create_symlink(root_ + "/deep/b.txt", root_ + "/inside.lnk");
  }
  std::string refused(const std::string& pattern) {
    DatasetOptions options{.sequence = 8, .root = root_};
    options.data.files = {pattern};
    const auto opened = TokenDataset::open(options);
    if (opened) return "it was read";
    EXPECT_EQ(opened.error().code, ErrorCode::kUserMistake);
    return opened.error().what;
  }
  void expect_refused(const std::string& pattern) {
    const std::string what = refused(pattern);
    EXPECT_NE(what.find("does not lie below this peer's data root"), std::string::npos)
        << pattern << ": " << what;
    EXPECT_NE(what.find("--data-root DIR"), std::string::npos);
  }

  const TempFolder temp_;
  const std::string root_ = temp_.path() + "/data";
};

TEST_F(DataRoot, WhatLiesBelowItIsRead) {
  for (const char* pattern : {"/a.txt", "/**/*.txt", "/deep/../a.txt", "/inside.lnk"}) {
    if (std::string(pattern) == "/**/*.txt") fs::remove(root_ + "/link.txt");
    EXPECT_EQ(refused(root_ + pattern), "it was read") << pattern;
  }
}

TEST_F(DataRoot, NothingElseIsHoweverItIsNamed) {
  expect_refused(temp_.path() + "/home/.ssh/id");
  expect_refused(temp_.path() + "/home/.ssh/*");
  expect_refused(root_ + "/../home/.ssh/id");
  expect_refused(root_ + "/deep/../../home/.ssh/*");
  expect_refused(temp_.path() + "/data-too/c.txt");
  expect_refused("/**");
  expect_refused("/etc/passwd");
  expect_refused("/proc/self/environ");
}

TEST_F(DataRoot, LinksThatLeadOutOfItAreFollowedToSeeThat) {
  expect_refused(root_ + "/link.txt");
  expect_refused(root_ + "/*.txt");
  expect_refused(root_ + "/folder/id");
  expect_refused(root_ + "/folder/*");
}

TEST_F(DataRoot, WithoutOneEverythingIsRead) {
  DatasetOptions options{.sequence = 8};
  options.data.files = {temp_.path() + "/data-too/c.txt"};
  EXPECT_TRUE(TokenDataset::open(options).has_value());
}

TEST(LiesBelow, IsNotFooledByNamesThatBeginTheSame) {
  const TempFolder temp;
  fs::create_directories(temp.path() + "/a/b");
  EXPECT_TRUE(*lies_below(temp.path() + "/a/b", temp.path() + "/a"));
  EXPECT_TRUE(*lies_below(temp.path() + "/a", temp.path() + "/a/"));
  EXPECT_FALSE(*lies_below(temp.path() + "/ab", temp.path() + "/a"));
  EXPECT_FALSE(*lies_below(temp.path(), temp.path() + "/a"));
  EXPECT_FALSE(lies_below(temp.path(), temp.path() + "/nowhere").has_value());
  EXPECT_TRUE(*lies_below("/etc/passwd", "/"));
}

}  // namespace
}  // namespace swarmline
