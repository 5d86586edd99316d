// What a run has cost since it began, over all its coordinators: the journal keeps it with each
// commit, so that the next coordinator counts on.
//   Units:  bytes, seconds of training, nats per token. Thread: pure values.
//   Errors: kCorrupt for a text that to_text() did not write, kIncompatible for a newer format.
//   Bounds: kLossesShown losses, an entry a boundary.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "pipeline/protocol/messages.pb.h"

namespace swarmline {

struct BoundaryTotals {
  std::uint64_t forward_codec = 0, forward_tokens = 0, forward_framing = 0;
  std::uint64_t backward_codec = 0, backward_framing = 0;
  std::uint64_t forward_messages = 0, backward_messages = 0;
  std::uint64_t early_tries = 0;
  void add(const wire::BoundaryBytes& bytes);
  void add(const BoundaryTotals& other);
  bool operator==(const BoundaryTotals&) const = default;
};

// In the run's currency (docs/money.md).
struct CostTotals {
  std::uint64_t since_version = 0;  // what steps before cost is not counted; 0: all is
  double machines = 0;              // the peers', by the hour
  double coordinator = 0;           // by the hour
  double egress = 0;                // by the byte
  // Parts of these that made no new step; no cent is in two of them.
  double waiting = 0;
  double joining = 0;
  double idle = 0;
  double again = 0;
  double fetched = 0;
  std::uint64_t egress_bytes = 0;
  std::uint64_t joiner_bytes = 0;
  std::uint64_t shadow_bytes = 0;
  std::uint64_t steps_again = 0;

  double total() const { return machines + coordinator + egress; }
  bool operator==(const CostTotals&) const = default;
};

struct RunTotals {
  static constexpr std::size_t kLossesShown = 60;

  std::uint64_t since_version = 0;  // what was before is not counted; 0: all is
  double seconds = 0;               // up to the newest commit
  std::uint64_t reduce_bytes = 0;
  std::uint64_t second_tries = 0;  // of microbatches of committed steps
  std::uint64_t control_bytes = 0;
  std::uint64_t checkpoint_bytes = 0;
  std::optional<double> held_out_loss;
  std::deque<double> losses;  // the last ones, oldest first
  std::vector<BoundaryTotals> boundaries;
  std::optional<CostTotals> cost;  // none: a coordinator before did not count it

  bool operator==(const RunTotals&) const = default;
};

std::string to_text(const RunTotals& totals);
Result<RunTotals> parse_run_totals(std::string_view text);

}  // namespace swarmline
