// What `swarmline chaos` does to a run, and when.
//   Format:  docs/formats/chaos.md. Pure.
//   Errors:  kUserMistake, "FILE:LINE: section.key: found ..., expected ...".
//   Bounds:  kChaosFaultsMax faults, drawn ones included.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/config/run_config.h"
#include "tools/chaos/chaos_swarm.h"

namespace swarmline {

inline constexpr int kChaosFormat = 1;
inline constexpr std::size_t kChaosFaultsMax = 10'000;

enum class ChaosKind : std::uint8_t {
  kKill,            // SIGKILL
  kRestart,         // the same, and after `seconds` the same command again
  kStop,            // SIGSTOP for `seconds`
  kSlow,            // `factor` times as long for everything, for `seconds`
  kCut,             // nothing passes between it and others for `seconds`
  kCorrupt,         // bits of what passes are flipped for `seconds`
  kJoin,            // another peer is started
  kHalfOpen,        // others see its links end; it hears nothing over them for `seconds`
  kIsolate,         // its links end at both ends, and nobody is reached for `seconds`
  kDiskFull,        // no file of it can be written for `seconds`
  kDiskSlow,        // the journal can be written a tenth of the time, for `seconds`
  kJournalRefused,  // the journal can't be written for `seconds`
  kCommand,         // `command`, and after `seconds` `undo`
};
std::string_view to_string(ChaosKind kind);

enum class ChaosPhase : std::uint8_t {
  kJoining,
  kForward,
  kBackward,
  kReduce,
  kCommit,
  kDownload,
  kCheckpoint,
  kStart,           // everybody's: the run does not train yet
  kTakeover,        // a coordinator has begun again and takes the peers over
  kLastCheckpoint,  // of the run's last step
};
std::string_view to_string(ChaosPhase phase);

struct ChaosTarget {
  enum class Kind : std::uint8_t {
    kCoordinator,
    kOneOfStage,     // at a phase: who comes there first
    kStage,          // all peers of it
    kNewcomer,       // a peer that is started for it
    kNewcomerStage,  // all peers of the newcomer's stage, it included
    kNamed,          // "peer-3"
  };
  Kind kind = Kind::kCoordinator;
  std::uint32_t stage = 0;
  std::string name;
  bool operator==(const ChaosTarget&) const = default;
};
std::string to_string(const ChaosTarget& target);

struct ChaosFault {
  std::string name;
  std::uint32_t line = 0;
  ChaosKind kind = ChaosKind::kKill;
  ChaosTarget who;
  double at_seconds = 0;      // since training began
  std::uint64_t at_step = 0;  // when so many steps are committed; with a phase: of that step or a
                              // later one
  std::optional<ChaosPhase> phase;
  double seconds = 1;
  double factor = 4;    // kSlow
  double flips = 1e-3;  // kCorrupt: bits per byte
  std::string command;  // kCommand: for /bin/sh
  std::string undo;     // kCommand: the same; may be empty

  bool needs_newcomer() const;
};

// Faults of single peers, drawn while the run goes on; never of the last sound one of a stage.
struct RandomChaos {
  std::uint64_t count = 0;
  double after = 0;    // seconds of training before the first may come
  double seconds = 0;  // evenly over so long, each at a time drawn within its share
  std::uint64_t seed = 1;
  double longest = 4;  // of what heals; uniform from a quarter of it
  double factor = 4;
  std::vector<ChaosKind> kinds;
};

struct ChaosPlan {
  std::string name;
  std::vector<ChaosFault> faults;
  RandomChaos random;

  bool hurts_links() const;
  bool ends_coordinator() const;  // for good: another one must stand by
};

Result<ChaosPlan> parse_chaos_plan(std::string_view text, std::string_view origin);
Result<ChaosPlan> load_chaos_plan(const std::string& path);
// What of the plan the run can't have: a stage that is not there, a phase that nobody reaches.
Result<void> check_chaos_plan(const ChaosPlan& plan, const RunConfig& config,
                              std::string_view origin);

// Where whom the fault waits for is held. `alone`: its stage has one peer, which averages with
// nobody.
std::vector<ChaosPoint> points_of(const ChaosFault& fault, bool alone);
// The fault waits for the coordinator to come to the phase, not for a peer.
bool coordinator_comes_to(const ChaosFault& fault);

}  // namespace swarmline
