// How a run gets on, as lines for whoever has no screen: its states, what goes wrong, a step now
// and then.
//   Thread: one. Ownership: values; writes to the standard output. Bounds: a line of steps each
//   kLinePeriod, and the events that a status has.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/units.h"
#include "node/protection_news.h"
#include "pipeline/protocol/run_status.h"

namespace swarmline {

class PlainProgress {
 public:
  static constexpr Duration kLinePeriod = std::chrono::seconds(2);

  // What happened before (since 1970) is no news.
  explicit PlainProgress(double begun_wall_seconds) : events_until_(begun_wall_seconds) {}
  void show(const RunStatus& status, Instant now);
  bool has_shown(std::uint64_t step) const { return step_ == step; }

 private:
  void show_state(const RunStatus& status);
  void show_bad_events(const RunStatus& status);

  std::optional<std::uint64_t> step_;
  Instant step_at_{};
  std::string state_;
  std::string page_;
  ProtectionNews protection_;
  bool journal_fails_ = false;
  std::optional<std::uint64_t> era_;
  std::optional<std::uint64_t> segment_;
  double events_until_;  // shown up to that time
};

}  // namespace swarmline
