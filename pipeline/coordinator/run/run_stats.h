// The numbers a run shows of itself: losses, speed, shares, bytes. Pure; instants are passed in.
//   What:   totals are those of the run, over all its coordinators, where the journal has them
//           (restore()); speeds, shares and busy times are of the last kWindowSteps steps.
//   Bounds: kWindowSteps steps with an entry a peer.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/units.h"
#include "engine/store/journal.h"
#include "engine/store/log_lines.h"
#include "pipeline/coordinator/run/run_totals.h"
#include "pipeline/coordinator/steps/boundary_board.h"

namespace swarmline {

class RunStats {
 public:
  static constexpr std::size_t kWindowSteps = 20;

  explicit RunStats(std::uint32_t stages);

  // What coordinators before have counted, or nothing is known of what was before that version.
  void restore(RunTotals totals);
  void nothing_known_before(std::uint64_t version) { totals_.since_version = version; }
  void on_training_started(Instant now);
  void on_reduced(const wire::Reduced& reduced);
  void on_backed_up(std::uint32_t microbatches) { backed_up_ += microbatches; }
  void on_rollback();  // what was being reduced is not committed
  void on_era(std::uint64_t version);
  // `shares`: an entry a peer; how long its device worked is filled in.
  void on_commit(const CommitRecord& commit, std::uint64_t reduce_bytes,
                 std::vector<PeerContributions> shares, Instant now);
  void on_evaluated(double loss) { totals_.held_out_loss = loss; }

  // Of the step that was committed last.
  StepLogLine log_line(const CommitRecord& commit, const BoundaryBoard& boundaries,
                       std::uint64_t reduce_bytes, double wall_seconds) const;
  const RunTotals& totals() const { return totals_; }
  // What its coordinators have sent and got, this one included; before: those before.
  RunTotals totals_with(std::uint64_t control_bytes, std::uint64_t checkpoint_bytes) const;

  std::optional<double> tokens_per_second() const;  // over the last steps
  // Of what is left of the run: `version` of its steps have been committed.
  std::optional<double> mean_tokens_per_second(std::uint64_t version, double tokens_per_step) const;
  double seconds_per_step() const;
  // Of the step that was committed last.
  double last_seconds() const { return recent_.back().seconds; }
  const std::vector<PeerContributions>& last_shares() const { return recent_.back().shares; }
  std::optional<double> last_loss() const;
  double elapsed_seconds(Instant now) const;  // of training
  // Of the last steps, by peer, as long as it served that stage.
  struct Work {
    std::uint64_t microbatches = 0;
    double busy = 0;  // of the time
  };
  std::map<PeerId, Work> work_at(StageId stage) const;

 private:
  struct RecentStep {
    double seconds = 0;
    std::uint64_t tokens = 0;
    std::vector<PeerContributions> shares;
  };
  Instant last_commit_{};
  bool running_ = false;
  std::deque<RecentStep> recent_;
  RunTotals totals_;
  std::map<std::uint32_t, BoundaryTotals> step_;  // of the step being reduced, by sending side
  std::map<std::uint32_t, BoundaryTotals> last_step_;
  std::uint32_t backed_up_ = 0;  // microbatches of the step, and of one that is open beside it
  std::uint64_t last_second_tries_ = 0;
  std::map<std::uint32_t, double> busy_seconds_;  // of the step being reduced, by peer
};

}  // namespace swarmline
