// A run's key in its file, and its rotation.
#include "node/admission/run_key.h"

#include <filesystem>
#include <thread>

#include <gtest/gtest.h>

#include "engine/identity/key_file.h"
#include "engine/store/secret_file.h"
#include "node/admission/invites.h"
#include "tests/store/temp_folder.h"

namespace swarmline {
namespace {

constexpr double kNow = 1'790'000'000;

class RunKeys : public ::testing::Test {
 protected:
  Result<RunKey> rotate(double now = kNow, double overlap = 3600) const {
    return rotate_run_key(path_, "run", now, overlap);
  }
  TempFolder folder_;
  const std::string path_ = folder_.at("run.key");
};

TEST_F(RunKeys, ARotatedKeyIsVouchedForByTheOneBefore) {
  const auto made = load_or_make_run_key(path_);
  ASSERT_TRUE(made.has_value()) << made.error().what;
  EXPECT_TRUE(made->handovers.empty());
  const auto next = rotate();
  ASSERT_TRUE(next.has_value()) << next.error().what;
  ASSERT_TRUE(rotate().has_value());
  const auto read = load_run_key(path_);
  ASSERT_TRUE(read.has_value()) << read.error().what;
  ASSERT_EQ(read->handovers.size(), 2U);
  const auto path = succession(made->identity.hash(), read->handovers, "run", kNow);
  ASSERT_EQ(path.size(), 2U);
  EXPECT_EQ(path.back().into, read->identity.public_key());
  EXPECT_EQ(load_key(path_)->hash(), read->identity.hash()) << "as any PEM file";
  EXPECT_EQ(load_or_make_run_key(path_)->identity.hash(), read->identity.hash());
}

TEST_F(RunKeys, ThereIsNoneToRotateWhereNoneWasMade) {
  EXPECT_EQ(rotate().error().code, ErrorCode::kNotFound);
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(RunKeys, AsManyAsALinkCanTellOfAreRotatedAtATime) {
  ASSERT_TRUE(load_or_make_run_key(path_));
  for (std::size_t i = 0; i < kHandoversMax; ++i)
    ASSERT_TRUE(rotate(kNow + static_cast<double>(i)));
  const std::string before = *read_secret_file(path_, kKeyFileBytesMax);
  const auto refused = rotate(kNow + 10);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kUserMistake);
  EXPECT_NE(refused.error().what.find("again in 3650 s"), std::string::npos)
      << refused.error().what;
  EXPECT_EQ(*read_secret_file(path_, kKeyFileBytesMax), before);
  EXPECT_TRUE(rotate(kNow + 3600 + kClockSkewSeconds + 1)) << "the first one is over";
}

TEST_F(RunKeys, TheFileStaysSmallHoweverOftenItIsRotated) {
  ASSERT_TRUE(load_or_make_run_key(path_));
  for (int i = 0; i < 40; ++i) ASSERT_TRUE(rotate(kNow + 10'000 * i));
  EXPECT_EQ(load_run_key(path_)->handovers.size(), kHandoversKept);
}

TEST_F(RunKeys, OfTwoThatRotateAtOnceOneComesAfterTheOther) {
  const auto made = load_or_make_run_key(path_);
  ASSERT_TRUE(made);
  std::thread other([this] { EXPECT_TRUE(rotate()); });
  EXPECT_TRUE(rotate());
  other.join();
  const auto read = load_run_key(path_);
  ASSERT_TRUE(read);
  EXPECT_EQ(succession(made->identity.hash(), read->handovers, "run", kNow).size(), 2U);
}

TEST_F(RunKeys, WhatDoesNotLeadToTheKeyIsNotTaken) {
  ASSERT_TRUE(load_or_make_run_key(path_));
  const auto next = rotate();
  ASSERT_TRUE(next);
  RunKey mixed = *next;
  mixed.identity = Identity::make();
  const auto read = parse_run_key(to_text(mixed), "run.key");
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(read.error().code, ErrorCode::kUserMistake);
  EXPECT_FALSE(parse_run_key(to_text(*next).substr(0, to_text(*next).size() - 9), "run.key"));
}

}  // namespace
}  // namespace swarmline
