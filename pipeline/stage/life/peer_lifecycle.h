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

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

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
inline constexpr std::size_t kPeerStates = 7;

std::string_view to_string(PeerState state);

constexpr bool may_follow(PeerState from, PeerState to) {
  using enum PeerState;
  constexpr auto set = [](auto... states) {
    return static_cast<std::uint8_t>(((1U << static_cast<unsigned>(states)) | ... | 0U));
  };
  constexpr std::array<std::uint8_t, kPeerStates> kAfter = {
      set(kBuilding, kInheriting, kFinished),  // seeking
      set(kSeated, kDropping, kFinished),      // building
      set(kSeated, kDropping, kFinished),      // inheriting
      set(kAdrift, kDropping, kFinished),      // seated
      set(kSeated, kDropping, kFinished),      // adrift
      set(kSeeking, kFinished),                // dropping
      set(),                                   // finished
  };
  return (kAfter[static_cast<std::size_t>(from)] >> static_cast<unsigned>(to) & 1U) != 0;
}

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
