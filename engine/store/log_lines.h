// The lines of a run's log.jsonl (docs/formats/log.md), one JSON object each, without the newline.
// Thread: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"

namespace swarmline {

inline constexpr int kLogFormat = 1;

// What one peer did in a step.
struct PeerContributions {
  PeerId peer;
  StageId stage;
  std::uint32_t microbatches = 0;  // contributions it owned when the step closed
  double busy_seconds = 0;         // of its device, for the step's microbatches
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
  std::uint64_t step = 0;
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

// Anything else worth keeping: "start", "peer_joined", "peer_lost", "checkpoint", "end", ...
struct EventLogLine {
  std::string kind;
  std::string detail;
  double wall_seconds = 0;
  std::vector<std::pair<std::string, std::string>> fields;  // further text members, in this order
};
std::string to_json_line(const EventLogLine& line);

}  // namespace swarmline
