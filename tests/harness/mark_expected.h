// `const MarkExpected doubt("ledger.doubt_resolved");` fails its test unless the mark is hit before
// the end of the scope: a test that forces an event shows so that the rule it is about fired.
#pragma once

#include <string>

#include <gtest/gtest.h>

#include "base/marks.h"

namespace swarmline {

class MarkExpected {
 public:
  explicit MarkExpected(std::string name)
      : name_(std::move(name)), mark_(Mark::find(name_)), before_(mark_ ? mark_->hits() : 0) {
    EXPECT_NE(mark_, nullptr) << "no line has the mark " << name_;
  }
  ~MarkExpected() {
    if (mark_ == nullptr) return;
    EXPECT_GT(mark_->hits(), before_) << "the mark " << name_ << " was not hit";
  }
  MarkExpected(const MarkExpected&) = delete;
  MarkExpected& operator=(const MarkExpected&) = delete;

 private:
  std::string name_;
  const Mark* mark_;
  std::uint64_t before_;
};

}  // namespace swarmline
