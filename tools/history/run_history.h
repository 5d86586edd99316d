// What a run's log.jsonl says of its steps: the numbers of each, and the evaluations between.
//   What:    of a step that was committed again after a return to a checkpoint the newest line
//            counts. A last line that is not whole (its writer was killed) is left out, and so is
//            what is no line of this format; how many such there were is counted.
//   Units:   losses in nats per token; wall seconds since 1970.
//   Errors:  kNotFound or kIo, with a sentence.
//   Bounds:  kHistoryLineBytesMax a line, kHistoryStepsMax steps.
//   Thread:  any. Ownership: values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace swarmline {

inline constexpr std::size_t kHistoryLineBytesMax = 16 << 20;  // thousands of peers
inline constexpr std::size_t kHistoryStepsMax = 10'000'000;

struct StepHistory {
  struct Peer {
    std::uint64_t peer = 0, stage = 0, microbatches = 0;
    double busy_seconds = 0;
  };
  std::uint64_t step = 0;
  std::optional<double> loss;  // none: it was not finite
  std::uint64_t tokens = 0;
  double seconds = 0;  // from the commit before
  double wall_seconds = 0;
  double gradient_norm = 0, learning_rate = 0;
  std::uint64_t boundary_bytes = 0, averaging_bytes = 0, second_tries = 0;
  std::vector<Peer> peers;
};
struct EvalHistory {
  std::uint64_t version = 0;
  double loss = 0;
  double wall_seconds = 0;
};
struct RunHistory {
  std::vector<StepHistory> steps;  // ascending, each once
  std::vector<EvalHistory> evals;  // ascending by version, each once
  std::uint64_t unread_lines = 0;
};

Result<RunHistory> read_history(const std::string& log_path);
// A row a step, with a header.
std::string to_csv(const RunHistory& history);

}  // namespace swarmline
