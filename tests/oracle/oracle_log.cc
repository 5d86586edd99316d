#include "tests/oracle/oracle_log.h"

#include <limits>
#include <utility>

#include <gtest/gtest.h>

#include "engine/store/json_value.h"

namespace swarmline::oracle {

void read_log(const std::vector<std::string>& lines, Trace& trace) {
  double eval_version = -1;
  bool went_back = false;
  for (const std::string& line : lines) {
    const auto json = parse_json(line);
    ASSERT_TRUE(json.has_value()) << line;
    const JsonValue& kind = (*json)["kind"];
    const JsonValue& loss = (*json)["loss"];
    if (kind.string == "new_era") went_back = true;
    if (kind.string == "step") {
      // The newest line of a step counts.
      const std::uint64_t before = (*json)["step"].count() - 1;
      if (std::exchange(went_back, false) && before < trace.losses.size())
        trace.losses.resize(before);
      EXPECT_EQ(before, trace.losses.size()) << line;
      trace.losses.push_back(loss.number_or(std::numeric_limits<double>::quiet_NaN()));
    } else if (kind.string == "eval" && (*json)["version"].number_or(-1) > eval_version) {
      eval_version = (*json)["version"].number_or(-1);
      trace.eval_loss = loss.number_or(std::numeric_limits<double>::quiet_NaN());
    }
  }
  if (eval_version >= 0) {
    EXPECT_EQ(eval_version, static_cast<double>(trace.losses.size()));
  }
}

}  // namespace swarmline::oracle
