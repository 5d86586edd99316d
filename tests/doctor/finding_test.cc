#include "tools/doctor/finding.h"

#include <vector>

#include <gtest/gtest.h>

#include "tests/golden/golden.h"

namespace swarmline {
namespace {

const std::vector<Finding> kFindings = {
    {"port", CheckOutcome::kOk, "[net] listen 127.0.0.1:0 is free", ""},
    {"clock", CheckOutcome::kWarn, "this machine's clock is 9.0 s behind the coordinator's",
     "set it"},
    {"data", CheckOutcome::kFail, "a.txt is another file", "copy the run's files here"},
    {"driver", CheckOutcome::kSkipped, "the device is the CPU", ""},
};

TEST(Findings, AreALineEachAndOneThatSumsUp) {
  EXPECT_EQ(findings_text(kFindings),
            "ok      port         [net] listen 127.0.0.1:0 is free\n"
            "warn    clock        this machine's clock is 9.0 s behind the coordinator's: set it\n"
            "fail    data         a.txt is another file: copy the run's files here\n"
            "skipped driver       the device is the CPU\n"
            "4 checks: 1 ok, 1 warnings, 1 failed, 1 skipped\n");
  EXPECT_TRUE(any_failed(kFindings));
  EXPECT_FALSE(any_failed(std::vector(kFindings.begin(), kFindings.begin() + 2)));
}

// What a coordinator says is shown on a terminal.
TEST(Findings, OthersTextsAreEscaped) {
  const std::vector<Finding> found = {{"key", CheckOutcome::kFail, "\x1b[2Jgone\nok port", ""}};
  const std::string text = findings_text(found);
  EXPECT_EQ(text.find('\x1b'), std::string::npos) << text;
}

TEST(Findings, AsJson) {
  expect_golden("cli/doctor.json", findings_json(kFindings));
}

}  // namespace
}  // namespace swarmline
