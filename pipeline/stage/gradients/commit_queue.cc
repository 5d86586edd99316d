#include "pipeline/stage/gradients/commit_queue.h"

#include <memory>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/marks.h"

namespace swarmline {

namespace {

StageCommit from_message(const wire::Commit& message) {
  StageCommit commit{.step = message.step(),
                     .skipped = message.skipped(),
                     .again = message.again(),
                     .keep = message.keep(),
                     .groups = {},
                     .scalars = {.learning_rate = message.learning_rate(),
                                 .clip_scale = message.clip_scale(),
                                 .bias_correction1 = message.bias_correction1(),
                                 .bias_correction2 = message.bias_correction2()}};
  for (const wire::GroupDigest& group : message.groups())
    commit.groups.push_back({.group = GroupId{group.group()},
                             .attempt = RoundAttempt{group.attempt()},
                             .digest = group.digest()});
  return commit;
}

Error not_the_next(std::uint64_t step, Version committed) {
  return {ErrorCode::kIncompatible,
          fmt::format("commit of step {} on version {}", step + 1, committed.value)};
}

}  // namespace

CommitQueue::CommitQueue(StageContext& context, StageJobs& jobs, GradientExchange& gradients,
                         bool following, bool paused, Hooks hooks)
    : context_(context),
      jobs_(jobs),
      gradients_(gradients),
      hooks_(std::move(hooks)),
      following_(following),
      paused_(paused) {}

// ---- Hearing of them ----------------------------------------------------------------------------

Result<void> CommitQueue::on_commit(const wire::Commit& message) {
  if (message.again() && message.step() < heard().value) return {};
  if (message.step() != heard().value)
    return std::unexpected(not_the_next(message.step(), committed_));
  const double corrections[] = {message.bias_correction1(), message.bias_correction2()};
  for (double correction : corrections)
    if (!message.skipped() && !(correction > 0 && correction <= 1))
      return fail(ErrorCode::kCorrupt, "a commit with a bias correction outside (0, 1]");
  if (message.ends_early_seat()) return end_early_seat(message), Result<void>();
  waiting_.push_back(from_message(message));
  if (message.again()) {
    SWARMLINE_MARK("commits.heard_again");
    // Of the same bytes by its digest, whichever attempt this peer averaged last.
    for (StageCommit::Group& group : waiting_.back().groups)
      group.attempt =
          gradients_.attempt_of(message.step(), group.group, group.digest).value_or(group.attempt);
  }
  advance();
  return {};
}

// Its own averaging has the gradients. Others step at once; it steps when its state is here, and
// serves until the commits that it hears of have been applied no more.
void CommitQueue::end_early_seat(const wire::Commit& message) {
  SWARMLINE_MARK("commits.early_seat_over");
  following_ = true;
  waiting_.push_back(from_message(message));
  expect_gradients(waiting_.back());
  if (paused_) hooks_.on_over({PhaseKind::kTrain, message.step()});
  hooks_.on_early_seat_over();
  advance();
}

Result<void> CommitQueue::follow(const wire::Commit& message) {
  if (!waiting_.empty() ? message.step() != waiting_.back().step + 1
                        : !paused_ && message.step() != committed_.value)
    return std::unexpected(not_the_next(message.step(), committed_));
  if (waiting_.size() >= kFollowedMax) {
    SWARMLINE_MARK("commits.too_far_behind");
    log(LogLevel::kWarn, "{}: {} commits behind; starting over from a newer state",
        to_string(context_.self), waiting_.size());
    waiting_.clear();
    paused_ = true;
    hooks_.on_too_far_behind();
    return {};
  }
  waiting_.push_back(from_message(message));
  expect_gradients(waiting_.back());
  if (!paused_) advance();
  return {};
}

void CommitQueue::expect_gradients(const StageCommit& commit) {
  if (commit.skipped) return;
  for (const auto& [group, attempt, digest] : commit.groups)
    if (gradients_.in_group(group))
      gradients_.expect({{PhaseKind::kTrain, commit.step}, group, attempt}, digest);
}

void CommitQueue::drop_below(Version version) {
  while (!waiting_.empty() && waiting_.front().step < version.value) waiting_.pop_front();
}

void CommitQueue::drop_all() {
  waiting_.clear();
}

// ---- Applying them ------------------------------------------------------------------------------

bool CommitQueue::gradients_here(const StageCommit& commit) {
  bool here = true;
  if (commit.skipped) return here;
  for (const auto& [group, attempt, digest] : commit.groups)
    if (gradients_.in_group(group) &&
        !gradients_.have({{PhaseKind::kTrain, commit.step}, group, attempt}, digest))
      here = false;
  return here;
}

void CommitQueue::advance() {
  while (!paused_ && !waiting_.empty()) {
    if (const std::uint64_t step = waiting_.front().step; step != committed_.value) {
      waiting_.clear();
      return context_.fail(not_the_next(step, committed_));
    }
    if (!gradients_here(waiting_.front())) return;
    const StageCommit commit = waiting_.front();
    apply(commit);
    waiting_.pop_front();
  }
  hooks_.on_idle();
}

void CommitQueue::apply(const StageCommit& commit) {
  gradients_.on_commit(commit.step, commit.skipped);
  hooks_.on_over({PhaseKind::kTrain, commit.step});
  committed_ = Version{commit.step + 1};
  if (commit.keep && !commit.skipped) gradients_.retain(commit.step);
  gradients_.forget_retained(commit.step);
  auto digest = std::make_shared<std::uint64_t>();
  jobs_.run(
      [this, scalars = commit.scalars, skipped = commit.skipped, digest]() -> Result<void> {
        SWARMLINE_TRY(context_.state.apply(scalars, skipped));
        auto made = context_.state.digest();
        if (!made) return std::unexpected(std::move(made).error());
        *digest = *made;
        return {};
      },
      [this, digest, version = committed_] { on_stepped(version, *digest); });
}

void CommitQueue::on_stepped(Version version, std::uint64_t digest) {
  hooks_.on_stepped(version);
  if (following_ && version == committed_) return say_ready(digest);
  reached_ = {version, digest};
  wire::Stepped stepped;
  *stepped.mutable_seat() = to_wire(context_.self);
  stepped.set_version(version.value);
  stepped.set_state_digest(digest);
  context_.notify_coordinator(make_frame(MessageKind::kStepped, stepped));
}

void CommitQueue::say_ready(std::uint64_t digest) {
  reached_ = {committed_, digest};
  wire::Ready ready;
  *ready.mutable_seat() = to_wire(context_.self);
  ready.set_version(committed_.value);
  ready.set_state_digest(digest);
  context_.notify_coordinator(make_frame(MessageKind::kReady, ready));
}

void CommitQueue::hold_at(Version version) {
  early_ = true;
  committed_ = version;
  gradients_.begin_at(version);
}

void CommitQueue::begin_at(Version version) {
  paused_ = false;
  early_ = false;
  committed_ = version;
  gradients_.begin_at(version);
}

bool CommitQueue::take_seat() {
  return std::exchange(following_, false);
}

void CommitQueue::check_invariants() const {
  for (std::size_t i = 1; i < waiting_.size(); ++i)
    SWARMLINE_CHECK(waiting_[i].step == waiting_[i - 1].step + 1);
  SWARMLINE_CHECK(paused_ || waiting_.empty() || waiting_.front().step == committed_.value);
  SWARMLINE_CHECK(waiting_.size() <= kFollowedMax);
  SWARMLINE_CHECK(paused_ || reached_.version <= committed_);
}

}  // namespace swarmline
