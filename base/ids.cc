#include "base/ids.h"

#include <fmt/format.h>

namespace swarmline {

// For people, who count steps from 1 on: phase.step 11 is "step 12", which makes version 12.
std::string to_string(const Phase& phase) {
  return phase.kind == PhaseKind::kTrain ? fmt::format("step {}", phase.step + 1)
                                         : fmt::format("eval of version {}", phase.step);
}

std::string to_string(const MicrobatchId& id) {
  return fmt::format("{} microbatch {}", to_string(id.phase), id.index);
}

std::string to_string(const Seat& seat) {
  return fmt::format("peer {} (stage {}, incarnation {})", seat.peer.value, seat.stage.value,
                     seat.incarnation.value);
}

}  // namespace swarmline
