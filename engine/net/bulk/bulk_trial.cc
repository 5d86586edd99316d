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
  return BulkTrial{.number = next_, .way = way_of(next_), .bytes = bytes_};
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
  const PayloadWay way = way_of(number);
  if (way == PayloadWay::kFrames) rounds_.emplace_back();
  rounds_.back().at(index_of(way)) = static_cast<double>(bytes_) / to_seconds(took);
  if (way == PayloadWay::kFrames) return {};
  if (is_last_round()) {
    verdict_ = {.way = faster_way(),
                .is_measured = true,
                .frames_rate = rate(PayloadWay::kFrames),
                .link_rate = rate(PayloadWay::kLink)};
  } else if (rules_.must_be_faster) {
    bytes_ = std::min(2 * bytes_, kBulkTrialBytesMax);
  }
  return {};
}

// Whether more bytes show more of what the line carries.
bool BulkTrials::is_last_round() const {
  if (rounds_.size() == kBulkTrialRounds) return true;
  if (!rules_.must_be_faster || rounds_.size() == 1) return false;
  const Round &last = rounds_.back(), &before = rounds_[rounds_.size() - 2];
  return last[0] < kBulkFasterTimes * before[0] && last[1] < kBulkFasterTimes * before[1];
}

void BulkTrials::give_up() {
  if (verdict_) return;
  const bool link_is_late = left_ && way_of(next_ - 1) == PayloadWay::kLink;
  const double frames = rate(PayloadWay::kFrames), link = rate(PayloadWay::kLink);
  const bool has_lost = rules_.must_be_faster ? link_is_late || faster_way() == PayloadWay::kFrames
                                              : link_is_late && frames > 0;
  verdict_ = {.way = has_lost ? PayloadWay::kFrames : PayloadWay::kLink,
              .is_measured = false,
              .frames_rate = frames,
              .link_rate = link};
}

// The best of the rounds that are alike: the last two, where each has more bytes than those before.
double BulkTrials::rate(PayloadWay way) const {
  const std::size_t first = rules_.must_be_faster && rounds_.size() > 2 ? rounds_.size() - 2 : 0;
  double best = 0;
  for (std::size_t round = first; round < rounds_.size(); ++round)
    best = std::max(best, rounds_[round].at(index_of(way)));
  return best;
}

PayloadWay BulkTrials::faster_way() const {
  const double frames = rate(PayloadWay::kFrames), link = rate(PayloadWay::kLink);
  const bool frames_win = rules_.must_be_faster ? link < kBulkFasterTimes * frames || link == 0
                                                : frames > kBulkFasterTimes * link;
  return frames_win ? PayloadWay::kFrames : PayloadWay::kLink;
}

Result<void> BulkTrialsTaken::take(std::uint64_t number, std::uint64_t bytes) {
  if (number != next_ || number >= kBulkTrialsMax)
    return fail(ErrorCode::kCorrupt, fmt::format("trial {} came, {} is the next of at most {}",
                                                 number, next_, kBulkTrialsMax));
  if (bytes < kBulkTrialBytes || bytes > kBulkTrialBytesMax)
    return fail(ErrorCode::kCorrupt, fmt::format("a trial of {} bytes, expected {} to {}", bytes,
                                                 kBulkTrialBytes, kBulkTrialBytesMax));
  ++next_;
  return {};
}

SharedBytes bulk_trial_payload(std::uint64_t bytes) {
  Buffer payload(bytes);
  std::uint64_t word = 1;
  for (std::size_t at = 0; at < payload.size(); at += sizeof(word)) {
    word = word * 6364136223846793005U + 1442695040888963407U;
    std::memcpy(payload.data() + at, &word, sizeof(word));
  }
  return SharedBytes(std::move(payload));
}

}  // namespace swarmline
