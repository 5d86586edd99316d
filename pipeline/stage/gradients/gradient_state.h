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

#include <cstdint>

#include "base/transition_table.h"

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

namespace gradient_state {
using enum GradientState;

// Anything but a gradient on its way into its place may be forgotten at any time.
inline constexpr Transitions<GradientState> kRows[] = {
    {kNone, {kAveraging, kFetching, kHeld, kRetained}},
    {kAveraging, {kSummed, kFetching, kNone}},
    {kSummed, {kHeld, kFetching, kNone}},
    {kFetching, {kChecked, kBoth, kNone}},
    {kBoth, {kHeld, kFetching, kNone}},
    {kChecked, {kPlacing, kNone}},
    {kPlacing, {kHeld, kNone}},
    {kHeld, {kKept, kFetching, kNone}},
    {kKept, {kHeld, kRetained, kFetching}},
    {kRetained, {kFetching, kNone}},
};
}  // namespace gradient_state

inline constexpr TransitionTable<GradientState, 10> kGradientStates({"none", "averaging", "summed",
                                                                     "fetching", "both", "checked",
                                                                     "placing", "held", "kept",
                                                                     "retained"},
                                                                    gradient_state::kRows);

}  // namespace swarmline
