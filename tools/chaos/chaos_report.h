// What a chaos run did and what came of it: read out of its log, for people and for programs
// (docs/formats/chaos.md). Pure.
//   Units: seconds; microbatches per second.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/store/json_value.h"

namespace swarmline {

// One fault as it was done, or was not.
struct ChaosDone {
  std::string name;
  std::string what;                  // "restart peer-3 (stage 1), averaging step 4"
  std::vector<std::uint32_t> peers;  // that were hurt, by their number in the run
  bool coordinator = false;          // it was hurt
  std::optional<double> at;          // wall clock; none: it never came to it
  // After that. Noticed: the first event of the log that names a hurt peer, or any event when it
  // was the coordinator. Recovered: from this commit on kRecoveryWindow steps took no longer than
  // 1 / kRecoveredShare of what the living peers need for them.
  std::optional<double> noticed, committed, recovered;
};

// From then on a process computes at that speed, in microbatches per second at any stage.
struct ChaosSpeed {
  double at = 0;  // wall clock
  std::string process;
  double speed = 0;
};

enum class ChaosVerdict : std::uint8_t { kEqual, kDiffers, kNotJudged };

struct ChaosComparison {
  ChaosVerdict verdict = ChaosVerdict::kNotJudged;
  std::string sentence;  // what was compared with what, or why not
  double max_rel_to_peak = 0;
  double allowed = 0;
};

struct ChaosResult {
  std::string name;
  std::string run;
  bool finished = false;  // the run did all its steps
  std::string end;        // its last sentence
  std::vector<ChaosDone> faults;
  std::vector<std::string> unplanned;  // peers that ended though nobody had ended them
  std::uint64_t stages = 1;
  std::uint64_t microbatches = 1;  // a step
  std::vector<ChaosSpeed> speeds;  // ascending; empty: not known
  // Filled from the log.
  double began = 0;  // wall clock, of the first commit
  double seconds = 0;
  std::uint64_t steps = 0;
  std::uint64_t steps_again = 0;  // commits of steps that had been committed
  std::optional<double> share;    // of what the living peers could have given
  // The same of the steps before the first fault: what a step's ends cost without any. Their
  // quotient is what the faults left.
  std::optional<double> undisturbed;
  std::optional<double> left() const {
    return share && undisturbed ? std::optional(*share / *undisturbed) : std::nullopt;
  }
  ChaosComparison comparison;

  bool all_done() const;
  bool good() const;  // it finished, all faults were done, and the parameters do not differ
};

inline constexpr double kRecoveredShare = 0.95;
inline constexpr std::size_t kRecoveryWindow = 4;  // steps

// Fills times, steps and share from the lines of the run's log.
void read_log(ChaosResult& result, std::span<const JsonValue> lines);

std::string chaos_text(const ChaosResult& result);  // several lines, each ended
std::string chaos_json(const ChaosResult& result);

}  // namespace swarmline
