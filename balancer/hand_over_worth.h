// Whether a peer that should move to another stage begins to inside an open step, and gives a mate
// what it has added, or works on until the step ends, when it has nothing to give.
//   Units:  seconds: that the step still takes, that its averaging takes, and to drain and begin
//           anew, of which a move has kMarginsOfAHandOver.
//   Source: what a mover gives is its stage's gradients as they are. Averaging moves about as many
//           bytes, with 8-bit codecs a quarter of them.
//   Thread: any.
#pragma once

namespace swarmline {

inline constexpr double kRoundsOfAHandOver = 4;
inline constexpr double kMarginsOfAHandOver = 4;

constexpr bool is_worth_a_hand_over(double left, double round, double margin) {
  return left > kRoundsOfAHandOver * round + kMarginsOfAHandOver * margin;
}

}  // namespace swarmline
