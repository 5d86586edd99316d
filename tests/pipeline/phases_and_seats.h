// Phases and seats by their numbers.
#pragma once

#include <cstdint>

#include "base/ids.h"

namespace swarmline {

inline Phase train(std::uint64_t step) {
  return {PhaseKind::kTrain, step};
}
inline Phase eval(std::uint64_t version) {
  return {PhaseKind::kEval, version};
}
inline Seat seat_of(std::uint32_t peer, std::uint16_t stage) {
  return {PeerId{peer}, StageId{stage}, Incarnation{1}};
}

}  // namespace swarmline
