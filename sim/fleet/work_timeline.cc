#include "sim/fleet/work_timeline.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace swarmline {
namespace {

class Account {
 public:
  Account(const TrainingRate& rate, const CheckpointRule& rule) : rate_(rate), rule_(rule) {}

  void add(const WorkSpan& span) {
    begin(span);
    result_.seconds += span.seconds;
    double left = span.seconds;
    const double tokens_per_second = rate_.at(span.speed);
    while (left > 0) {
      if (pause(left)) continue;
      if (tokens_per_second == 0) {
        result_.stalled_seconds += left;
        write(left);
        return;
      }
      const double until = is_saving_ ? saving_left_ : rule_.period_seconds - since_saved_;
      const double training = std::min(left, until);
      tokens_ += training * tokens_per_second;
      result_.followed_tokens += training * tokens_per_second * static_cast<double>(span.followers);
      since_saved_ += training;
      left -= training;
      write(training);
    }
  }

  WorkAccount result() {
    result_.tokens = tokens_;
    return result_;
  }

 private:
  void begin(const WorkSpan& span) {
    result_.fetches += span.fetches;
    if (span.rolls_back) {
      ++result_.rollbacks;
      lose(tokens_ - saved_);
      saving_left_ = since_saved_ = 0;
      is_saving_ = false;
    }
    if (span.steps_again > 0)
      lose(std::min(span.steps_again * rate_.step_tokens, tokens_ - saved_));
    if (span.saves && !is_saving_) save();
    const double after_saving = span.saves ? saving_left_ : 0;
    stall_left_ = std::max(stall_left_, span.stall_seconds + after_saving);
  }
  void lose(double tokens) {
    tokens_ -= tokens;
    being_saved_ = std::min(being_saved_, tokens_);
    result_.lost_tokens += tokens;
  }
  void save() {
    is_saving_ = true;
    being_saved_ = tokens_;
    since_saved_ = 0;
    saving_left_ = rule_.write_seconds;
    if (saving_left_ == 0) complete();
  }
  void complete() {
    is_saving_ = false;
    saved_ = being_saved_;
  }
  // So much time has passed.
  void write(double seconds) {
    if (is_saving_) saving_left_ -= seconds;
    if (is_saving_ && saving_left_ <= 0) complete();
    if (!is_saving_ && since_saved_ >= rule_.period_seconds) save();
  }
  // What is written goes on through a stall: those who write are not those who are gone.
  bool pause(double& left) {
    const double blocked = is_saving_ && !rule_.in_background ? saving_left_ : 0;
    const double seconds = std::min(left, std::max(blocked, stall_left_));
    if (seconds <= 0) return false;
    left -= seconds;
    const double saving = std::min(seconds, blocked);
    result_.saving_seconds += saving;
    result_.stalled_seconds += seconds - saving;
    stall_left_ = std::max(0.0, stall_left_ - seconds);
    write(seconds);
    return true;
  }

  const TrainingRate& rate_;
  const CheckpointRule rule_;
  WorkAccount result_;
  double tokens_ = 0, saved_ = 0, being_saved_ = 0;
  double since_saved_ = 0;  // seconds of training
  double saving_left_ = 0, stall_left_ = 0;
  bool is_saving_ = false;
};

}  // namespace

void WorkTimeline::advance(double seconds) {
  SWARMLINE_CHECK(seconds >= now_);
  if (seconds == now_) return;
  open_.seconds = seconds - now_;
  spans_.push_back(open_);
  open_ = {.seconds = 0, .speed = open_.speed};
  now_ = seconds;
}

std::vector<WorkSpan> WorkTimeline::finish(double end) {
  advance(end);
  return std::move(spans_);
}

double TrainingRate::at(double speed) const {
  if (speed <= 0 || tokens_per_second.empty()) return 0;
  const double last = static_cast<double>(tokens_per_second.size() - 1);
  if (speed >= last) return tokens_per_second.back();
  const auto below = static_cast<std::size_t>(speed);
  const double part = speed - static_cast<double>(below);
  return tokens_per_second[below] * (1 - part) + tokens_per_second[below + 1] * part;
}

WorkAccount account_work(const std::vector<WorkSpan>& spans, const TrainingRate& rate,
                         const CheckpointRule& checkpoints) {
  SWARMLINE_CHECK(checkpoints.period_seconds > 0 && checkpoints.write_seconds >= 0);
  Account account(rate, checkpoints);
  for (const WorkSpan& span : spans) {
    SWARMLINE_CHECK(span.seconds >= 0 && span.stall_seconds >= 0);
    account.add(span);
  }
  return account.result();
}

double daly_period(double write_seconds, double seconds_between_failures) {
  const double ratio = write_seconds / (2 * seconds_between_failures);
  if (ratio >= 1) return seconds_between_failures;
  return std::sqrt(2 * write_seconds * seconds_between_failures) *
             (1 + std::sqrt(ratio) / 3 + ratio / 9) -
         write_seconds;
}

}  // namespace swarmline
