// Strong identifiers: one type per meaning, so that a stage number can't be passed for a peer
// number. Values are plain integers; ordering and hashing are those of the integer. Thread: plain
// values.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <string>

namespace swarmline {

template <typename Tag, typename Rep>
struct StrongId {
  using rep = Rep;
  Rep value{};

  constexpr StrongId() = default;
  constexpr explicit StrongId(Rep v) : value(v) {}
  constexpr auto operator<=>(const StrongId&) const = default;
};

// A process that serves one stage at a time; numbered by the coordinator, never reused within a
// run. 0 = nobody.
using PeerId = StrongId<struct PeerIdTag, std::uint32_t>;
// A contiguous slice of the model's layers, 0-based.
using StageId = StrongId<struct StageIdTag, std::uint16_t>;
// Counts how often a peer was seated; fencing ends an incarnation.
using Incarnation = StrongId<struct IncarnationTag, std::uint32_t>;
// One coordinator's reign; peers ignore lower ones.
using Term = StrongId<struct TermTag, std::uint64_t>;
// Raised when the run goes back to a checkpoint; bytes of other eras are refused.
using Era = StrongId<struct EraTag, std::uint32_t>;
// The parameters after that many commits; version 0 is the initialisation.
using Version = StrongId<struct VersionTag, std::uint64_t>;
// Peers whose sums are averaged together: a stage's, or those of an embedding that two stages
// share.
using GroupId = StrongId<struct GroupIdTag, std::uint32_t>;
// One try at a microbatch. 0 is the source's own; the others are made by the functions below.
using Attempt = StrongId<struct AttemptTag, std::uint64_t>;

// One try at a group's averaging of one step.
using RoundAttempt = StrongId<struct RoundAttemptTag, std::uint32_t>;
// How often a phase was opened: what was sent under an epoch that is sealed is refused.
using PhaseEpoch = StrongId<struct PhaseEpochTag, std::uint64_t>;

// One optimizer step (kTrain) or one pass over the held-out split (kEval, named by the version it
// evaluates).
enum class PhaseKind : std::uint8_t { kTrain = 0, kEval = 1 };

struct Phase {
  PhaseKind kind = PhaseKind::kTrain;
  std::uint64_t step = 0;  // kTrain: the step; kEval: the version evaluated
  constexpr auto operator<=>(const Phase&) const = default;
};

struct MicrobatchId {
  Phase phase;
  std::uint32_t index = 0;  // 0 .. microbatches of the phase - 1
  constexpr auto operator<=>(const MicrobatchId&) const = default;
};

struct AttemptId {
  MicrobatchId microbatch;
  Attempt attempt;
  constexpr auto operator<=>(const AttemptId&) const = default;
};

// The place a peer holds: whatever an earlier incarnation says is refused.
struct Seat {
  PeerId peer;
  StageId stage;
  Incarnation incarnation;
  constexpr auto operator<=>(const Seat&) const = default;
};
// With a peer's seat all its earlier ones are over.
constexpr bool is_over_with(const Seat& seat, const Seat& lost) {
  return seat.peer == lost.peer && seat.incarnation <= lost.incarnation;
}

// ---- Numbers with parts ----
// Each coordinator's reign and each sender number their tries apart, so that no two are the same.
//
//   Attempt, 64 bits:       63 the second run of a contribution that is taken back
//                           32..62 the peer that sends again, whose lowest 15 bits are never all 0;
//                           or term - 1 of the ledger that leased it again, above 15 bits of 0
//                           0..31 a counter
//   RoundAttempt, 32 bits:  8.. term - 1; 0..7 a counter
//   PhaseEpoch, 64 bits:    32.. term; 0..31 a counter
inline constexpr std::uint64_t kTermMax = std::uint64_t{1} << 15;
// Such numbers are given to no peer: their tries would be called as a ledger's.
constexpr bool is_peer_number(std::uint32_t value) {
  return value % (std::uint32_t{1} << 15) != 0;
}

constexpr Attempt resend_attempt(PeerId sender, std::uint32_t counter) {
  return Attempt{std::uint64_t{sender.value} << 32 | counter};
}
constexpr Attempt lease_attempt(Term term, std::uint64_t counter) {
  return Attempt{(term.value - 1) << 47 | counter};
}
constexpr Attempt second_run(Attempt attempt) {
  return Attempt{attempt.value | std::uint64_t{1} << 63};
}
constexpr bool is_second_run(Attempt attempt) {
  return attempt.value >> 63 != 0;
}
constexpr RoundAttempt first_round_attempt(Term term) {
  return RoundAttempt{static_cast<std::uint32_t>((term.value - 1) << 17)};
}
constexpr PhaseEpoch first_phase_epoch(Term term) {
  return PhaseEpoch{term.value << 32};
}

std::string to_string(const Phase& phase);      // "step 12" / "eval of version 12"
std::string to_string(const MicrobatchId& id);  // "step 12 microbatch 3"
std::string to_string(const Seat& seat);        // "peer 4 (stage 1, incarnation 1)"

}  // namespace swarmline

template <typename Tag, typename Rep>
struct std::hash<swarmline::StrongId<Tag, Rep>> {
  std::size_t operator()(swarmline::StrongId<Tag, Rep> id) const noexcept {
    return std::hash<Rep>{}(id.value);
  }
};
