// Reads the lines that log_lines.h writes (docs/formats/log.md).
//   What:   what a line of this format or an earlier one says; none of a newer one, of one that is
//           not whole, or of what is no JSON. Keys that are not there are 0 or empty.
//   Units:  losses in nats per token; wall seconds since 1970.
//   Bounds: kLogLineBytesMax a line: a longer one is none. Thread: any; pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace swarmline {

inline constexpr std::size_t kLogLineBytesMax = 16 << 20;  // thousands of peers

struct LoggedStep {
  struct Peer {
    std::uint64_t peer = 0;
    std::string name;  // empty: the line does not say
    std::uint64_t stage = 0, microbatches = 0;
    double busy_seconds = 0;
  };
  std::uint64_t step = 0;      // from 0 on; lines count from 1 on, in format 1 from 0 on
  std::optional<double> loss;  // none: it was not finite
  std::uint64_t tokens = 0;
  double seconds = 0;  // from the commit before
  double wall_seconds = 0;
  double gradient_norm = 0, learning_rate = 0;
  std::uint64_t boundary_bytes = 0, averaging_bytes = 0, second_tries = 0;
  std::vector<Peer> peers;
};

struct LoggedEval {
  std::uint64_t version = 0;
  double loss = 0;
  double wall_seconds = 0;
};

struct LoggedEvent {
  std::string kind;
  std::string detail;
  double wall_seconds = 0;
  std::string level;  // "info", "warn", "error"; empty: the line does not say
};

using LogEntry = std::variant<LoggedStep, LoggedEval, LoggedEvent>;

// An evaluation whose loss was not finite is a mere event.
std::optional<LogEntry> read_log_line(std::string_view line);

}  // namespace swarmline
