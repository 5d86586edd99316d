// In a test program of a pure library: all of its tests together reach every mark of the library,
// so that no rule is there that only seeds reach, or nobody.
//   const auto* const kMarks = expect_all_marks("ledger.");
// Asked once all tests have ended; not where some of them were left out by a filter.
#pragma once

#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "base/marks.h"

namespace swarmline {

class AllMarksHit final : public ::testing::Environment {
 public:
  explicit AllMarksHit(std::string prefix) : prefix_(std::move(prefix)) {}
  void TearDown() override {
    const auto& tests = *::testing::UnitTest::GetInstance();
    if (tests.test_to_run_count() != tests.total_test_count()) return;
    std::size_t marks = 0;
    for (const Mark* mark : Mark::all()) {
      if (!mark->name().starts_with(prefix_)) continue;
      ++marks;
      EXPECT_GT(mark->hits(), 0U) << "no test hits the mark " << mark->name();
    }
    EXPECT_GT(marks, 0U) << "no mark begins with " << prefix_;
  }

 private:
  std::string prefix_;
};

inline const ::testing::Environment* expect_all_marks(std::string prefix) {
  return ::testing::AddGlobalTestEnvironment(new AllMarksHit(std::move(prefix)));
}

}  // namespace swarmline
