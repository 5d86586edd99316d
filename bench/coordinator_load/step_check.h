// Whether a step was counted as it must be: each microbatch exactly once in each stage.
//   What:   takes down every contribution that a coordinator accepted, of any open step; says what
//           is wrong with a step that it committed.
//   Thread: pure. Bounds: kStepsMax steps at a time, a bit for each microbatch and stage.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace swarmline {

class StepCheck {
 public:
  static constexpr std::size_t kStepsMax = 4;

  StepCheck(std::uint32_t stages, std::uint32_t microbatches)
      : stages_(stages), microbatches_(microbatches) {}

  // What is wrong with it; empty: nothing.
  std::string accepted(std::uint64_t step, std::uint32_t stage, std::uint32_t index);
  // All that was accepted of the step is known. What is missing; empty: nothing. It is forgotten.
  std::string committed(std::uint64_t step);

 private:
  struct Step {
    std::vector<bool> cells;  // stage by stage
    std::uint64_t count = 0;
  };

  std::uint32_t stages_;
  std::uint32_t microbatches_;
  std::map<std::uint64_t, Step> steps_;
};

}  // namespace swarmline
