#include "pipeline/coordinator/run/run_stats.h"

#include <algorithm>
#include <utility>

namespace swarmline {

RunStats::RunStats(std::uint32_t stages) {
  totals_.boundaries.resize(stages > 0 ? stages : 1);
}

// A run that is cut anew has other boundaries: their bytes are no one's.
void RunStats::restore(RunTotals totals) {
  const std::size_t stages = totals_.boundaries.size();
  totals_ = std::move(totals);
  if (totals_.boundaries.size() != stages) totals_.boundaries.assign(stages, {});
}

void RunStats::on_training_started(Instant now) {
  if (!std::exchange(running_, true)) last_commit_ = now;
}

void RunStats::on_reduced(const wire::Reduced& reduced) {
  if (!reduced.has_boundary()) return;
  // A peer counts what it sends: forward over the boundary above it, gradients over the one below.
  const std::uint32_t stage = reduced.seat().stage();
  const wire::BoundaryBytes& bytes = reduced.boundary();
  wire::BoundaryBytes forward = bytes;
  forward.set_backward_codec(0);
  forward.set_backward_framing(0);
  forward.set_backward_messages(0);
  step_[stage].add(forward);
  busy_seconds_[reduced.seat().peer()] += 1e-9 * static_cast<double>(reduced.busy_ns());
  if (stage == 0) return;
  wire::BoundaryBytes backward;
  backward.set_backward_codec(bytes.backward_codec());
  backward.set_backward_framing(bytes.backward_framing());
  backward.set_backward_messages(bytes.backward_messages());
  step_[stage - 1].add(backward);
}

void RunStats::on_rollback() {
  step_.clear();
  backed_up_ = 0;
  busy_seconds_.clear();
}

void RunStats::on_era(std::uint64_t version) {
  totals_.since_version = std::min(totals_.since_version, version);
}

void RunStats::on_commit(const CommitRecord& commit, std::uint64_t reduce_bytes,
                         std::vector<PeerContributions> shares, Instant now) {
  const double seconds = to_seconds(now - std::exchange(last_commit_, now));
  for (PeerContributions& share : shares) {
    const auto busy = busy_seconds_.find(share.peer.value);
    if (busy != busy_seconds_.end()) share.busy_seconds = busy->second;
  }
  busy_seconds_.clear();
  recent_.push_back({.seconds = seconds, .tokens = commit.tokens, .shares = std::move(shares)});
  if (recent_.size() > kWindowSteps) recent_.pop_front();
  totals_.losses.push_back(commit.loss);
  if (totals_.losses.size() > RunTotals::kLossesShown) totals_.losses.pop_front();
  totals_.seconds += seconds;
  totals_.reduce_bytes += reduce_bytes;
  last_step_ = std::exchange(step_, {});
  last_second_tries_ = std::exchange(backed_up_, 0);
  for (const auto& [stage, of_step] : last_step_) {
    last_second_tries_ += of_step.early_tries;
    if (stage < totals_.boundaries.size()) totals_.boundaries[stage].add(of_step);
  }
  totals_.second_tries += last_second_tries_;
}

StepLogLine RunStats::log_line(const CommitRecord& commit, const BoundaryBoard& boundaries,
                               std::uint64_t reduce_bytes, double wall_seconds) const {
  StepLogLine line;
  line.step = commit.step;
  line.version = commit.version;
  line.loss = commit.loss;
  line.tokens = commit.tokens;
  line.seconds = recent_.back().seconds;
  line.wall_seconds = wall_seconds;
  line.gradient_norm = commit.gradient_norm;
  line.learning_rate = commit.learning_rate;
  line.skipped = commit.skipped;
  line.peers = recent_.back().shares;
  for (const auto& [stage, totals] : last_step_) {
    if (stage + 1 >= totals_.boundaries.size()) continue;
    const auto forward = boundaries.view(stage, BoundaryBoard::kForward);
    const auto backward = boundaries.view(stage, BoundaryBoard::kBackward);
    line.boundaries.push_back(
        {.from = StageId{static_cast<std::uint16_t>(stage)},
         .forward_bytes = totals.forward_codec + totals.forward_tokens + totals.forward_framing,
         .backward_bytes = totals.backward_codec + totals.backward_framing,
         .forward_codec = to_string(forward.codec),
         .backward_codec = to_string(backward.codec),
         .forward_error = forward.relative_error,
         .backward_error = backward.relative_error});
  }
  line.averaging_bytes = reduce_bytes;
  line.second_tries = last_second_tries_;
  return line;
}

RunTotals RunStats::totals_with(std::uint64_t control_bytes, std::uint64_t checkpoint_bytes) const {
  RunTotals all = totals_;
  all.control_bytes += control_bytes;
  all.checkpoint_bytes += checkpoint_bytes;
  return all;
}

std::optional<double> RunStats::tokens_per_second() const {
  double seconds = 0;
  std::uint64_t tokens = 0;
  for (const RecentStep& step : recent_) {
    seconds += step.seconds;
    tokens += step.tokens;
  }
  return seconds > 0 ? std::optional(static_cast<double>(tokens) / seconds) : std::nullopt;
}

std::optional<double> RunStats::mean_tokens_per_second(std::uint64_t version,
                                                       double tokens_per_step) const {
  if (version <= totals_.since_version || totals_.seconds <= 0) return std::nullopt;
  return static_cast<double>(version - totals_.since_version) * tokens_per_step / totals_.seconds;
}

double RunStats::seconds_per_step() const {
  double seconds = 0;
  for (const RecentStep& step : recent_) seconds += step.seconds;
  return recent_.empty() ? 0 : seconds / static_cast<double>(recent_.size());
}

std::optional<double> RunStats::last_loss() const {
  return totals_.losses.empty() ? std::nullopt : std::optional(totals_.losses.back());
}

double RunStats::elapsed_seconds(Instant now) const {
  return totals_.seconds + (running_ ? to_seconds(now - last_commit_) : 0);
}

std::map<PeerId, RunStats::Work> RunStats::work_at(StageId stage) const {
  std::map<PeerId, Work> work;
  std::map<PeerId, double> seconds;
  for (const RecentStep& step : recent_)
    for (const PeerContributions& share : step.shares) {
      if (share.stage != stage) continue;
      work[share.peer].microbatches += share.microbatches;
      work[share.peer].busy += share.busy_seconds;
      seconds[share.peer] += step.seconds;
    }
  for (auto& [peer, of_peer] : work)
    of_peer.busy = seconds[peer] > 0 ? std::min(of_peer.busy / seconds[peer], 1.0) : 0;
  return work;
}

}  // namespace swarmline
