#include "engine/store/log_lines.h"

#include <cmath>

#include <gtest/gtest.h>

#include "tests/golden/golden.h"
#include "tests/store/temp_folder.h"

namespace swarmline {
namespace {

// A changed line must raise kLogFormat and docs/formats/log.md.
TEST(LogLinesTest, Golden) {
  const StepLogLine step{
      .step = 12,
      .version = 13,
      .loss = 3.25,
      .tokens = 4096,
      .seconds = 0.5,
      .wall_seconds = 1.75e9,
      .gradient_norm = 1.5,
      .learning_rate = 3e-4,
      .peers = {{PeerId(1), StageId(0), 5, 0.25, "gpu-box"}, {PeerId(2), StageId(0), 3}},
      .boundaries = {{StageId(0), 1000, 900, "h8", "none", 0.0625, 0},
                     {StageId(1), 1001, 901, "bf16", "h8"}},
      .averaging_bytes = 777,
      .second_tries = 3,
      .cost = 12.5};
  StepLogLine skipped{.step = 13, .version = 13, .loss = std::nan(""), .skipped = true};
  const EvalLogLine eval{
      .version = 13, .loss = 3.5, .sequences = 64, .tokens = 8192, .wall_seconds = 1.75e9};
  const EventLogLine event{.kind = "peer_lost",
                           .detail = "laptop (peer 2, stage 0): it said nothing for 10 s",
                           .wall_seconds = 1.75e9,
                           .level = LogLevel::kWarn,
                           .subject = EventLogLine::Subject{
                               .seat = {PeerId(2), StageId(0), Incarnation(1)}, .name = "laptop"}};
  expect_golden("log/log.jsonl", to_json_line(step) + "\n" + to_json_line(skipped) + "\n" +
                                     to_json_line(eval) + "\n" + to_json_line(event) + "\n");
}

}  // namespace
}  // namespace swarmline
