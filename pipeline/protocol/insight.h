// What a coordinator and its peers show of themselves to the simulator's oracles: values, read
// between two events. Nothing in a run hangs on them.
//   Thread: any.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/ids.h"

namespace swarmline {

// Something that grows, and what it must not grow beyond.
struct NamedSize {
  std::string_view name;
  std::uint64_t size = 0;
  std::uint64_t bound = 0;
};

// Where a run stands; cheap to ask.
struct RunGlance {
  bool trains = false;      // steps are open, or were when the coordinator began again
  bool ended = false;       // all that follows is its end
  bool goes_back = false;   // it looks for where the next era begins
  bool recovering = false;  // it hears from its peers what they hold
  bool is_held_up = false;  // what it decided waits for the journal to be said
  std::uint32_t waits_given_up =
      0;  // for a stage's last peers, by this reign: going back is cheaper
  Era era;
  Version committed;
};

// A stage's whole state in some process. kKept: of a seat that it lost.
struct HeldState {
  enum class How : std::uint8_t { kSeat, kKept, kShadow };
  How how = How::kSeat;
  StageId stage;
  Era era;
  Version version;
};

}  // namespace swarmline
