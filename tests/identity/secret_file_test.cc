// Files that only their owner may read.
#include "engine/store/secret_file.h"

#include <algorithm>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sys/file.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include "tests/store/temp_folder.h"

namespace swarmline {
namespace {

class SecretFile : public ::testing::Test {
 protected:
  unsigned mode() const {
    struct stat info{};
    EXPECT_EQ(stat(path_.c_str(), &info), 0);
    return info.st_mode & 0777U;
  }
  TempFolder folder_;
  std::string path_ = folder_.at("secret");
};

TEST_F(SecretFile, IsCreatedOnceAndReplacedWhole) {
  ASSERT_TRUE(create_secret_file(path_, "one").has_value());
  const auto again = create_secret_file(path_, "two");
  ASSERT_FALSE(again.has_value());
  EXPECT_EQ(again.error().code, ErrorCode::kRefused);
  EXPECT_EQ(*read_secret_file(path_, 100), "one");
  ASSERT_TRUE(replace_secret_file(path_, "three").has_value());
  EXPECT_EQ(*read_secret_file(path_, 100), "three");
  EXPECT_EQ(mode(), 0600U);
}

TEST_F(SecretFile, LongerThanItMayBeIsRefused) {
  ASSERT_TRUE(create_secret_file(path_, std::string(100, 'x')).has_value());
  EXPECT_TRUE(read_secret_file(path_, 100).has_value());
  EXPECT_EQ(read_secret_file(path_, 99).error().code, ErrorCode::kRefused);
}

TEST_F(SecretFile, LinesAreAppendedByManyAtOnceAndNoneIsLost) {
  std::vector<std::thread> writers;
  for (int writer = 0; writer < 4; ++writer) {
    writers.emplace_back([this, writer] {
      for (int i = 0; i < 10; ++i) {
        const auto appended = append_secret_line(path_, 10'000, [&](std::string_view so_far) {
          EXPECT_TRUE(so_far.empty() || so_far.back() == '\n');
          return std::to_string(writer) + ":" + std::to_string(i);
        });
        EXPECT_TRUE(appended.has_value());
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(slurp(path_).size(), 40 * 4U);
  EXPECT_EQ(mode(), 0600U);
}

TEST_F(SecretFile, AHalfWrittenLineIsNone) {
  ASSERT_TRUE(create_secret_file(path_, "whole\nhal").has_value());
  ASSERT_TRUE(append_secret_line(path_, 100, [](std::string_view so_far) {
                EXPECT_EQ(so_far, "whole\n");
                return "next";
              }).has_value());
  EXPECT_EQ(slurp(path_), "whole\nnext\n");
}

TEST_F(SecretFile, NothingIsAppendedWhereThereIsNoLineOrNoRoom) {
  ASSERT_TRUE(create_secret_file(path_, "line\n").has_value());
  EXPECT_TRUE(append_secret_line(path_, 100, [](std::string_view) { return ""; }).has_value());
  const auto failed = append_secret_line(
      path_, 100, [](std::string_view) { return fail(ErrorCode::kRefused, "not this time"); });
  EXPECT_EQ(failed.error().what, "not this time");
  EXPECT_FALSE(append_secret_line(path_, 8, [](std::string_view) { return "more"; }).has_value());
  EXPECT_EQ(slurp(path_), "line\n");
}

TEST_F(SecretFile, WhoeverKeepsItLockedIsNotWaitedForForEver) {
  ASSERT_TRUE(create_secret_file(path_, "").has_value());
  const int holder = ::open(path_.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(flock(holder, LOCK_EX), 0);
  const auto late = append_secret_line(path_, 100, [](std::string_view) { return "x"; });
  ASSERT_FALSE(late.has_value());
  EXPECT_NE(late.error().what.find("locked"), std::string::npos);
  ::close(holder);
  EXPECT_TRUE(append_secret_line(path_, 100, [](std::string_view) { return "x"; }).has_value());
}

TEST_F(SecretFile, IsRewrittenWholeWhileOthersAppendToIt) {
  const std::string path = folder_.at("lines");
  constexpr int kEach = 20;
  const auto append = [&] {
    for (int i = 0; i < kEach; ++i)
      EXPECT_TRUE(append_secret_line(path, 1 << 20, [](std::string_view) { return "line"; }));
  };
  std::thread one(append), other(append);
  for (int i = 0; i < kEach; ++i)
    EXPECT_TRUE(rewrite_secret_file(path, 1 << 20, [](std::string_view so_far) {
      return std::string(so_far) + "rewritten\n";
    }));
  one.join();
  other.join();
  const auto whole = read_secret_file(path, 1 << 20);
  ASSERT_TRUE(whole.has_value());
  EXPECT_EQ(std::ranges::count(*whole, '\n'), 3 * kEach) << "nobody's line is lost";
  EXPECT_FALSE(rewrite_secret_file(path, 1 << 20, [](std::string_view) -> Result<std::string> {
    return fail(ErrorCode::kRefused, "no");
  }));
  EXPECT_EQ(*read_secret_file(path, 1 << 20), *whole);
}

}  // namespace
}  // namespace swarmline
