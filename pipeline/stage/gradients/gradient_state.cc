#include "pipeline/stage/gradients/gradient_state.h"

namespace swarmline {

std::string_view to_string(GradientState state) {
  constexpr std::array<std::string_view, kGradientStates> kNames = {
      "none",    "averaging", "summed", "fetching", "both",
      "checked", "placing",   "held",   "kept",     "retained"};
  return kNames[static_cast<std::size_t>(state)];
}

}  // namespace swarmline
