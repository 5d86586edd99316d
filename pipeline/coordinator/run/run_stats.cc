#include "pipeline/coordinator/run/run_stats.h"

#include <utility>

namespace swarmline {

void BoundaryTotals::add(const wire::BoundaryBytes& bytes) {
  forward_codec += bytes.forward_codec();
  forward_tokens += bytes.forward_tokens();
  forward_framing += bytes.forward_framing();
  backward_codec += bytes.backward_codec();
  backward_framing += bytes.backward_framing();
  forward_messages += bytes.forward_messages();
  backward_messages += bytes.backward_messages();
  early_tries += bytes.early_tries();
}

void BoundaryTotals::add(const BoundaryTotals& other) {
  forward_codec += other.forward_codec;
  forward_tokens += other.forward_tokens;
  forward_framing += other.forward_framing;
  backward_codec += other.backward_codec;
  backward_framing += other.backward_framing;
  forward_messages += other.forward_messages;
  backward_messages += other.backward_messages;
  early_tries += other.early_tries;
}

void RunStats::on_training_started(Instant now) {
  if (std::exchange(running_, true)) return;
  started_ = last_commit_ = now;
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

void RunStats::on_new_era() {
  step_.clear();
  backed_up_ = 0;
  busy_seconds_.clear();
}

void RunStats::on_commit(const CommitRecord& commit, std::uint64_t reduce_bytes, Instant now) {
  last_step_seconds_ = to_seconds(now - last_commit_);
  last_commit_ = now;
  recent_.emplace_back(last_step_seconds_, commit.tokens);
  if (recent_.size() > kSpeedWindowSteps) recent_.pop_front();
  losses_.push_back(commit.loss);
  if (losses_.size() > kLossesShown) losses_.pop_front();
  tokens_ += commit.tokens;
  reduce_bytes_ += reduce_bytes;
  last_step_ = std::exchange(step_, {});
  last_busy_seconds_ = std::exchange(busy_seconds_, {});
  last_second_tries_ = std::exchange(backed_up_, 0);
  for (const auto& [stage, totals] : last_step_) {
    last_second_tries_ += totals.early_tries;
    if (stage < totals_.size()) totals_[stage].add(totals);
  }
  second_tries_ += last_second_tries_;
}

std::string RunStats::log_line(const CommitRecord& commit,
                               const std::vector<PeerContributions>& shares,
                               const BoundaryBoard& boundaries, std::uint64_t reduce_bytes,
                               double wall_seconds) const {
  StepLogLine line;
  line.step = commit.step;
  line.version = commit.version;
  line.loss = commit.loss;
  line.tokens = commit.tokens;
  line.seconds = last_step_seconds_;
  line.wall_seconds = wall_seconds;
  line.gradient_norm = commit.gradient_norm;
  line.learning_rate = commit.learning_rate;
  line.skipped = commit.skipped;
  line.peers = shares;
  for (PeerContributions& share : line.peers) {
    const auto busy = last_busy_seconds_.find(share.peer.value);
    if (busy != last_busy_seconds_.end()) share.busy_seconds = busy->second;
  }
  for (const auto& [stage, totals] : last_step_) {
    if (stage + 1 >= totals_.size()) continue;
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
  return to_json_line(line);
}

double RunStats::tokens_per_second() const {
  double seconds = 0;
  std::uint64_t tokens = 0;
  for (const auto& [step_seconds, step_tokens] : recent_) {
    seconds += step_seconds;
    tokens += step_tokens;
  }
  return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
}

double RunStats::mean_tokens_per_second() const {
  const double seconds = to_seconds(last_commit_ - started_);
  return seconds > 0 ? static_cast<double>(tokens_) / seconds : 0;
}

double RunStats::seconds_per_step() const {
  double seconds = 0;
  for (const auto& [step_seconds, step_tokens] : recent_) seconds += step_seconds;
  return recent_.empty() ? 0 : seconds / static_cast<double>(recent_.size());
}

double RunStats::elapsed_seconds(Instant now) const {
  return running_ ? to_seconds(now - started_) : 0;
}

}  // namespace swarmline
