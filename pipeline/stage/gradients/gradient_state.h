// The life of one group's averaged gradient of one step, at one member, as one attempt at it:
//
//     (new) -> Averaging -> Summed ----> Held -> Kept -> Retained -> (gone)
//     (new) -> Fetching -> Checked -> Placing -^
//
//   Averaging: chunks go round. Summed: all are here, and are hashed.
//   Fetching:  pieces come from members that hold it. Checked: it is what its digest says, and
//              waits for its turn. Placing: on its way to where an averaging puts it.
//   Both:      still fetched, and its own averaging has ended after all: as good as held.
//   Held:      there, with its digest: it can be stepped with, and others may have it.
//   Kept:      held, and copied for members that have yet to fetch it. Retained: only the copy is
//              left, its place was taken by another.
//   Thread:    plain values.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace swarmline {

enum class GradientState : std::uint8_t {
  kNone,
  kAveraging,
  kSummed,
  kFetching,
  kBoth,
  kChecked,
  kPlacing,
  kHeld,
  kKept,
  kRetained,
};
inline constexpr std::size_t kGradientStates = 10;

std::string_view to_string(GradientState state);

// From each state the ones that may follow. Anything but a gradient on its way into its place may
// be forgotten at any time.
constexpr bool may_follow(GradientState from, GradientState to) {
  using enum GradientState;
  constexpr auto set = [](auto... states) {
    return static_cast<std::uint16_t>(((1U << static_cast<unsigned>(states)) | ... | 0U));
  };
  constexpr std::array<std::uint16_t, kGradientStates> kAfter = {
      set(kAveraging, kFetching, kHeld, kRetained),  // none
      set(kSummed, kFetching, kNone),                // averaging
      set(kHeld, kFetching, kNone),                  // summed
      set(kChecked, kBoth, kNone),                   // fetching
      set(kHeld, kFetching, kNone),                  // both
      set(kPlacing, kNone),                          // checked
      set(kHeld, kNone),                             // placing
      set(kKept, kFetching, kNone),                  // held
      set(kHeld, kRetained, kFetching),              // kept
      set(kFetching, kNone),                         // retained
  };
  return (kAfter[static_cast<std::size_t>(from)] >> static_cast<unsigned>(to) & 1U) != 0;
}

}  // namespace swarmline
