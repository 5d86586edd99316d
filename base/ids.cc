#include "base/ids.h"

#include <fmt/format.h>

namespace swarmline {

std::string to_string(const Phase& phase) {
  return phase.kind == PhaseKind::kTrain ? fmt::format("step {}", phase.step)
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
