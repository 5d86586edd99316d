// A trial of the link to a run's coordinator, from this machine as a peer would make it.
//   What:    dials the addresses one after the other, proves the invite, asks the coordinator's
//            clock a few times, has it dial back, and sends filler either way. It takes no seat.
//            An invite with a number of uses counts it as one, unless [peer] key names a file.
//   Thread:  any; blocking, with a runtime and a network of its own.
//   Errors:  none; what went wrong is in the facts. kUserMistake: the address to listen at, or the
//            key's file, is unusable.
//   Bounds:  kDialSeconds for each address, kAnswerSeconds for an answer; kSpeedBytesMax and
//            kSpeedSeconds for filler each way, kFillersUnderWay at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "base/units.h"
#include "engine/config/run_config.h"
#include "engine/data/data_manifest.h"
#include "node/run_access.h"

namespace swarmline {

inline constexpr double kDialSeconds = 5;
inline constexpr double kAnswerSeconds = 5;
inline constexpr double kSpeedSeconds = 2;
inline constexpr std::uint64_t kSpeedBytesMax = 16 * kMiB;
inline constexpr std::uint32_t kFillersUnderWay = 32;
inline constexpr int kClockQuestions = 5;

struct WaySpeed {  // one way
  std::uint64_t bytes = 0;
  double seconds = 0;  // until the last of them was answered, a round trip taken off
  double bits_per_second() const {
    return seconds > 0 ? 8 * static_cast<double>(bytes) / seconds : 0;
  }
};

struct CoordinatorFacts {
  std::string address;              // of the one that answered, else of the first
  std::optional<Error> no_link;     // why there is no link to any
  std::optional<Error> no_answer;   // there is a link, and this was asked for in vain
  bool has_keys = false;            // the link is between keys
  std::uint32_t protocol = 0;       // that it speaks
  double round_trip_seconds = 0;    // the shortest
  double ahead_seconds = 0;         // its clock, of this machine's
  std::string seen_from;            // where it sees the link come from
  std::string listens_at;           // where this end listened
  std::string reach;                // what it says of that: yes no elsewhere unknown
  std::string not_reached;          // why not
  WaySpeed up, down;                // to it, and from it
  std::optional<RunConfig> config;  // none: not for this invite
  std::uint32_t vocab = 0;
  std::optional<DataManifest> data;  // none: not for this invite, or there is no list
};

Result<CoordinatorFacts> try_coordinator(const JoinTarget& target, const PeerConfig& machine);

}  // namespace swarmline
