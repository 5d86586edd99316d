// The lines of a run's log.jsonl (docs/formats/log.md), one JSON object each, without the newline.
// Thread: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/log_level.h"

namespace swarmline {

inline constexpr int kLogFormat = 2;

// What one peer did in a step.
struct PeerContributions {
  PeerId peer;
  StageId stage;
  std::uint32_t microbatches = 0;  // contributions it owned when the step closed
  double busy_seconds = 0;         // of its device, for the step's microbatches
  std::string name;                // empty: unknown
};

// What crossed one boundary between stages in a step, both directions, codec payload and all
// framing.
struct BoundaryBytes {
  StageId from;  // the boundary from this stage to the next
  std::uint64_t forward_bytes = 0;
  std::uint64_t backward_bytes = 0;
  // From the next step on, with the relative L2 error last measured of it; below 0: not measured.
  std::string forward_codec, backward_codec;
  double forward_error = -1;
  double backward_error = -1;
};

struct StepLogLine {
  std::uint64_t step = 0;  // from 0 on; in the line, as all that people see, from 1 on
  std::uint64_t version = 0;
  double loss = 0;  // nats per token; NaN and infinities are written as null
  std::uint64_t tokens = 0;
  double seconds = 0;       // from the commit before to this one
  double wall_seconds = 0;  // since 1970
  double gradient_norm = 0;
  double learning_rate = 0;
  bool skipped = false;
  std::vector<PeerContributions> peers;
  std::vector<BoundaryBytes> boundaries;
  std::uint64_t averaging_bytes = 0;  // all-reduce, all stages
  std::uint64_t second_tries = 0;     // of microbatches, because somebody was late
  std::optional<double> cost;         // of the run so far; none: nobody says a price
};
std::string to_json_line(const StepLogLine& line);

struct EvalLogLine {
  std::uint64_t version = 0;
  double loss = 0;  // nats per token over `sequences` held-out sequences
  std::uint64_t sequences = 0;
  std::uint64_t tokens = 0;
  double wall_seconds = 0;
};
std::string to_json_line(const EvalLogLine& line);

// The numbers of a line that are drawn over steps, for who wants no JSON.
struct LogPoint {
  std::uint64_t step = 0;  // so many are done
  bool is_step = false;    // of its training; else of an evaluation
  double wall_seconds = 0;
  std::vector<std::pair<std::string_view, double>> values;  // tag and value
};
LogPoint point_of(const StepLogLine& line);
LogPoint point_of(const EvalLogLine& line);

// Anything else worth keeping, with its level and the peer that it is about: "start",
// "peer_joined", "peer_lost", "checkpoint", "end", ...
struct EventLogLine {
  std::string kind;
  std::string detail;
  double wall_seconds = 0;
  LogLevel level = LogLevel::kInfo;
  struct Subject {  // the peer that it is about
    Seat seat;
    std::string name;  // empty: unknown
  };
  std::optional<Subject> subject;
};
std::string to_json_line(const EventLogLine& line);

}  // namespace swarmline
