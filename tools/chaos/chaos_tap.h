// The network of a process that a chaos run steers (`swarmline chaos`, by its hidden command
// `tapped`; no other process has one): TCP that tells the chaos parent which frames pass and holds
// the whole process there until the parent answers, so that a fault hits it at a point of the
// protocol and not near it.
//   Lines:     from the process: "hello NAME", "listens HOST:PORT", "seat PEER STAGE", "route
//              HOST:PORT" (answered "via HOST:PORT"), "at WATCH STEP" (answered "go"); to it:
//              "links on|off" (answers hello), "watch ID KIND sent|received STEP", "unwatch ID",
//              "slow FACTOR".
//   A watch:   frames of message kind KIND that are about to be sent or handled, of step STEP or a
//              later one; kinds without a step pass as step 0. Frames of evaluations never match,
//              nor do downloads that are no joiner's (state_downloads.h).
//   Ownership: the runtime outlives the network. Thread: control thread.
//   Errors:    kPeerGone, kDeadline when the parent is not there at the start. Later its end is
//              ignored: the process goes on by itself.
//   Bounds:    kTapWait for each answer (kTapHelloWait for the first: a process may be kept waiting
//              before it does anything), kTapLineBytesMax a line, kTapWatchesMax.
#pragma once

#include <memory>
#include <string>

#include "node/network_factory.h"

namespace swarmline {

inline constexpr Duration kTapWait = std::chrono::seconds(10);
inline constexpr Duration kTapHelloWait = std::chrono::hours(24);
inline constexpr std::size_t kTapLineBytesMax = 4096;
inline constexpr std::size_t kTapWatchesMax = 4096;

// `parent`: HOST:PORT of the chaos run.
Result<std::unique_ptr<Network>> make_tapped_network(AsioRuntime& runtime,
                                                     const std::string& parent, NetworkUser user);

}  // namespace swarmline
