// Which of two ways the payloads of a connection take faster from this end to the other one: with
// their frames, or over its bulk link.
//   What:      BulkTrials: kBulkTrialRounds trials each way, in turns and one at a time. A trial is
//              a payload of kBulkTrialBytes, which the other end answers when it has all of it. The
//              best time of each way decides: whatever else goes on can only make a trial slower.
//              The link is kept unless frames are kBulkFasterTimes as fast. On two cores that up to
//              four other threads wanted as well, beside plain TCP, 49 of 360 verdicts kept
//              payloads from shared memory with three rounds and 1.1; with these 21 of 720.
//              A link that goes where frames go (BulkTrialRules::must_be_faster) is tried with
//              more: over a long line 1 MiB is on its way before it shows what the line carries.
//              Each round has twice the bytes of the one before, to kBulkTrialBytesMax, for as long
//              as either way gains kBulkFasterTimes by it. The best rate of the last two rounds
//              decides, and the link has to be kBulkFasterTimes as fast to be taken.
//              BulkTrialsTaken: what an end takes of the other one's trials.
//   Ownership: values. Thread: one at a time. Pure: who uses it has the clock.
//   Errors:    kCorrupt with a sentence: an answer to no trial; a trial out of turn, of another
//              size, or beyond the bound.
//   Bounds:    one trial on its way; kBulkTrialsMax of them, of kBulkTrialBytesMax each, are taken
//              of a connection's other end.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "base/units.h"

namespace swarmline {

inline constexpr std::uint32_t kFrameFlagBulkTrial = 32;  // beside those of frame.h
inline constexpr std::uint64_t kBulkTrialBytes = 1 * kMiB;
inline constexpr std::uint64_t kBulkTrialBytesMax = 8 * kMiB;
inline constexpr std::uint64_t kBulkTrialRounds = 5;
inline constexpr std::uint64_t kBulkTrialsMax = 32;  // more than are sent: later versions may
inline constexpr double kBulkFasterTimes = 1.25;

enum class PayloadWay : std::uint8_t { kFrames, kLink };

struct BulkTrialRules {
  bool must_be_faster = false;  // the link, to be taken
};

struct BulkTrial {
  std::uint64_t number = 0;  // from 0
  PayloadWay way = PayloadWay::kFrames;
  std::uint64_t bytes = kBulkTrialBytes;
  bool operator==(const BulkTrial&) const = default;
};

struct BulkVerdict {
  PayloadWay way = PayloadWay::kLink;
  bool is_measured = false;               // every trial was answered; else it is a guess
  double frames_rate = 0, link_rate = 0;  // bytes a second; 0: no trial was answered
};

class BulkTrials {
 public:
  explicit BulkTrials(BulkTrialRules rules = {}) : rules_(rules) {}
  const BulkTrialRules& rules() const { return rules_; }
  // What to send; none: one is on its way, or there is a verdict.
  std::optional<BulkTrial> next() const;
  void left(Instant now);  // next() is on its way
  // It may come after give_up(), too.
  Result<void> answered(std::uint64_t number, Instant now);
  // There was no time for more. The way whose trial was not answered has lost to one whose trials
  // were; where that says nothing, the link is taken (both ends wanted it) unless it has to be the
  // faster one.
  void give_up();
  const std::optional<BulkVerdict>& verdict() const { return verdict_; }

 private:
  // Bytes a second of each way, in one round; 0: not answered yet.
  using Round = std::array<double, 2>;

  static PayloadWay way_of(std::uint64_t number);
  double rate(PayloadWay way) const;
  bool is_last_round() const;
  PayloadWay faster_way() const;

  BulkTrialRules rules_;
  std::uint64_t next_ = 0, bytes_ = kBulkTrialBytes;
  std::optional<Instant> left_;  // of the one before it, which is on its way
  std::vector<Round> rounds_;    // of which some trial was answered
  std::optional<BulkVerdict> verdict_;
};

class BulkTrialsTaken {
 public:
  // The next one has come, or is announced, with so many bytes.
  Result<void> take(std::uint64_t number, std::uint64_t bytes);

 private:
  std::uint64_t next_ = 0;
};

// Nothing that stands between two ends makes it shorter.
SharedBytes bulk_trial_payload(std::uint64_t bytes);

}  // namespace swarmline
