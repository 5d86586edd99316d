// The numbers a run shows of itself: losses, speed, shares, bytes. Pure; instants are passed in.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/units.h"
#include "engine/store/journal.h"
#include "engine/store/log_lines.h"
#include "pipeline/coordinator/members/membership.h"
#include "pipeline/coordinator/steps/boundary_board.h"

namespace swarmline {

struct BoundaryTotals {
  std::uint64_t forward_codec = 0, forward_tokens = 0, forward_framing = 0;
  std::uint64_t backward_codec = 0, backward_framing = 0;
  std::uint64_t forward_messages = 0, backward_messages = 0;
  std::uint64_t early_tries = 0;
  void add(const wire::BoundaryBytes& bytes);
  void add(const BoundaryTotals& other);
};

class RunStats {
 public:
  static constexpr std::size_t kLossesShown = 60;
  static constexpr std::size_t kSpeedWindowSteps = 20;

  explicit RunStats(std::uint32_t stages) : totals_(stages > 0 ? stages : 1) {}

  void on_training_started(Instant now);
  void on_reduced(const wire::Reduced& reduced);
  void on_backed_up(std::uint32_t microbatches) { backed_up_ += microbatches; }
  void on_new_era();  // what was being reduced is not committed
  void on_commit(const CommitRecord& commit, std::uint64_t reduce_bytes, Instant now);
  void on_evaluated(double loss) { held_out_loss_ = loss; }

  std::string log_line(const CommitRecord& commit, const std::vector<PeerContributions>& shares,
                       const BoundaryBoard& boundaries, std::uint64_t reduce_bytes,
                       double wall_seconds) const;
  double tokens_per_second() const;  // over the last steps
  double mean_tokens_per_second() const;
  double seconds_per_step() const;
  double last_loss() const { return losses_.empty() ? 0 : losses_.back(); }
  const std::deque<double>& losses() const { return losses_; }
  double held_out_loss() const { return held_out_loss_; }
  std::uint64_t reduce_bytes() const { return reduce_bytes_; }
  // Microbatches of committed steps that were tried twice because somebody was late.
  std::uint64_t second_tries() const { return second_tries_; }
  const std::vector<BoundaryTotals>& boundaries() const { return totals_; }
  double elapsed_seconds(Instant now) const;

 private:
  Instant started_{};
  Instant last_commit_{};
  bool running_ = false;
  double last_step_seconds_ = 0;
  std::deque<std::pair<double, std::uint64_t>> recent_;  // seconds, tokens of recent steps
  std::deque<double> losses_;
  double held_out_loss_ = -1;
  std::uint64_t tokens_ = 0;
  std::uint64_t reduce_bytes_ = 0;
  std::map<std::uint32_t, BoundaryTotals> step_;  // of the step being reduced, by sending side
  std::map<std::uint32_t, BoundaryTotals> last_step_;
  std::uint32_t backed_up_ = 0;  // microbatches of the step, and of one that is open beside it
  std::uint64_t last_second_tries_ = 0;
  std::uint64_t second_tries_ = 0;
  std::map<std::uint32_t, double> busy_seconds_;  // of the step being reduced, by peer
  std::map<std::uint32_t, double> last_busy_seconds_;
  std::vector<BoundaryTotals> totals_;
};

}  // namespace swarmline
