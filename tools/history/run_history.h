// What a run's log.jsonl says of its steps: the numbers of each, and the evaluations between.
//   What:    of a step that was committed again after a return to a checkpoint the newest line
//            counts. A last line that is not whole (its writer was killed) is left out, and so is
//            what is no line of this format; how many such there were is counted.
//   Units:   losses in nats per token; wall seconds since 1970.
//   Errors:  kNotFound or kIo, with a sentence.
//   Bounds:  kLogLineBytesMax a line, kHistoryStepsMax steps.
//   Thread:  any. Ownership: values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/store/log_reader.h"

namespace swarmline {

inline constexpr std::size_t kHistoryStepsMax = 10'000'000;

using StepHistory = LoggedStep;
using EvalHistory = LoggedEval;
struct RunHistory {
  std::vector<StepHistory> steps;  // ascending, each once
  std::vector<EvalHistory> evals;  // ascending by version, each once
  std::uint64_t unread_lines = 0;
};

Result<RunHistory> read_history(const std::string& log_path);
// A row a step, with a header.
std::string to_csv(const RunHistory& history);

}  // namespace swarmline
