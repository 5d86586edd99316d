// The life of a peer, from its search for a coordinator to its last word:
//
//     Seeking -> Building ---> Seated <-> Adrift          (any) -> Finished
//        ^   \-> Inheriting -^    |          |
//        |                        v          v
//        +----------------------- Dropping <-+            (from Building and Inheriting, too)
//
//   Seeking:    it has no seat, and dials whoever may give it one.
//   Building:   it has a seat, and makes its stage. Inheriting: the same, with what its shadow of
//               that stage holds; what the coordinator says meanwhile is kept for the stage.
//   Seated:     its stage is there, as a joiner's or a member's.
//   Adrift:     its coordinator is gone; it keeps its stage for the next one.
//   Dropping:   the seat is over; the device has not let go of the stage yet.
//   Finished:   it says goodbye, and nothing else begins.
// A notice to leave may come in any of them: leaving() then ends what would begin anew.
//   What:       lives are counted: each ends with Dropping, and its timers end with it.
//   Thread:     plain value. Errors: a transition that the table does not have aborts.
#pragma once

#include <cstdint>

#include "base/transition_table.h"

namespace swarmline {

enum class PeerState : std::uint8_t {
  kSeeking,
  kBuilding,
  kInheriting,
  kSeated,
  kAdrift,
  kDropping,
  kFinished,
};

namespace peer_state {
using enum PeerState;

inline constexpr Transitions<PeerState> kRows[] = {
    {kSeeking, {kBuilding, kInheriting, kFinished}}, {kBuilding, {kSeated, kDropping, kFinished}},
    {kInheriting, {kSeated, kDropping, kFinished}},  {kSeated, {kAdrift, kDropping, kFinished}},
    {kAdrift, {kSeated, kDropping, kFinished}},      {kDropping, {kSeeking, kFinished}},
};
}  // namespace peer_state

inline constexpr TransitionTable<PeerState, 7> kPeerStates({"seeking", "building", "inheriting",
                                                            "seated", "adrift", "dropping",
                                                            "finished"},
                                                           peer_state::kRows);

class PeerLifecycle {
 public:
  void become(PeerState state);
  void leave() { leaving_ = true; }  // a notice came

  PeerState state() const { return state_; }
  bool is(PeerState state) const { return state_ == state; }
  bool finished() const { return is(PeerState::kFinished); }
  bool leaving() const { return leaving_; }
  bool has_seat() const { return seated(state_); }
  // It has one, or had one at its end and was not told to leave it.
  bool counts_as_seated() const { return finished() ? seated(before_) && !leaving_ : has_seat(); }
  // A stage is being made for it.
  bool making() const { return is(PeerState::kBuilding) || is(PeerState::kInheriting); }
  std::uint32_t life() const { return life_; }

 private:
  static bool seated(PeerState state) {
    return state != PeerState::kSeeking && state != PeerState::kDropping &&
           state != PeerState::kFinished;
  }

  PeerState state_ = PeerState::kSeeking;
  PeerState before_ = PeerState::kSeeking;
  bool leaving_ = false;
  std::uint32_t life_ = 0;
};

}  // namespace swarmline
