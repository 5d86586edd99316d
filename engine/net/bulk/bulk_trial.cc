#include "engine/net/bulk/bulk_trial.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"

namespace swarmline {
namespace {

std::size_t index_of(PayloadWay way) {
  return static_cast<std::size_t>(way);
}

}  // namespace

PayloadWay BulkTrials::way_of(std::uint64_t number) {
  return number % 2 == 0 ? PayloadWay::kFrames : PayloadWay::kLink;
}

std::optional<BulkTrial> BulkTrials::next() const {
  if (verdict_ || left_) return std::nullopt;
  return BulkTrial{.number = next_, .way = way_of(next_)};
}

void BulkTrials::left(Instant now) {
  SWARMLINE_CHECK(!verdict_ && !left_);
  left_ = now;
  ++next_;
}

Result<void> BulkTrials::answered(std::uint64_t number, Instant now) {
  if (!left_ || number + 1 != next_)
    return fail(ErrorCode::kCorrupt,
                fmt::format("trial {} was answered, which is not on its way", number));
  const Duration took = std::max(now - *std::exchange(left_, std::nullopt), Duration(1));
  if (verdict_) return {};
  auto& best = best_.at(index_of(way_of(number)));
  best = best ? std::min(*best, took) : took;
  if (next_ == 2 * kBulkTrialRounds) decide();
  return {};
}

void BulkTrials::give_up() {
  if (verdict_) return;
  const bool link_is_late = left_ && way_of(next_ - 1) == PayloadWay::kLink;
  const bool frames_came = best_.at(index_of(PayloadWay::kFrames)).has_value();
  verdict_ = {.way = link_is_late && frames_came ? PayloadWay::kFrames : PayloadWay::kLink,
              .is_measured = false,
              .frames_rate = rate(PayloadWay::kFrames),
              .link_rate = rate(PayloadWay::kLink)};
}

double BulkTrials::rate(PayloadWay way) const {
  const auto& best = best_.at(index_of(way));
  return best ? static_cast<double>(kBulkTrialBytes) / to_seconds(*best) : 0.0;
}

void BulkTrials::decide() {
  const double frames = rate(PayloadWay::kFrames), link = rate(PayloadWay::kLink);
  verdict_ = {.way = frames > kBulkFramesFaster * link ? PayloadWay::kFrames : PayloadWay::kLink,
              .is_measured = true,
              .frames_rate = frames,
              .link_rate = link};
}

Result<void> BulkTrialsTaken::take(std::uint64_t number, std::uint64_t bytes) {
  if (number != next_ || number >= kBulkTrialsMax)
    return fail(ErrorCode::kCorrupt, fmt::format("trial {} came, {} is the next of at most {}",
                                                 number, next_, kBulkTrialsMax));
  if (bytes != kBulkTrialBytes)
    return fail(ErrorCode::kCorrupt,
                fmt::format("a trial of {} bytes, expected {}", bytes, kBulkTrialBytes));
  ++next_;
  return {};
}

SharedBytes bulk_trial_payload() {
  Buffer payload(kBulkTrialBytes);
  std::uint64_t word = 1;
  for (std::size_t at = 0; at < payload.size(); at += sizeof(word)) {
    word = word * 6364136223846793005U + 1442695040888963407U;
    std::memcpy(payload.data() + at, &word, sizeof(word));
  }
  return SharedBytes(std::move(payload));
}

}  // namespace swarmline
