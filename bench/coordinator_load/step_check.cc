#include "bench/coordinator_load/step_check.h"

#include <algorithm>

#include <fmt/format.h>

namespace swarmline {

std::string StepCheck::accepted(std::uint64_t step, std::uint32_t stage, std::uint32_t index) {
  if (stage >= stages_ || index >= microbatches_)
    return fmt::format("step {} has no microbatch {} in stage {}", step, index, stage);
  Step& open = steps_[step];
  if (steps_.size() > kStepsMax) return fmt::format("{} steps are open", steps_.size());
  if (open.cells.empty()) open.cells.resize(std::size_t{stages_} * microbatches_);
  auto cell = open.cells[std::size_t{stage} * microbatches_ + index];
  if (cell)
    return fmt::format("microbatch {} of step {} was counted twice in stage {}", index, step,
                       stage);
  cell = true;
  ++open.count;
  return {};
}

std::string StepCheck::committed(std::uint64_t step) {
  const auto found = steps_.extract(step);
  const std::uint64_t all = std::uint64_t{stages_} * microbatches_;
  const std::uint64_t counted = found.empty() ? 0 : found.mapped().count;
  if (counted == all) return {};
  std::string first;
  if (!found.empty()) {
    const auto missing = std::ranges::find(found.mapped().cells, false);
    const auto cell = static_cast<std::uint64_t>(missing - found.mapped().cells.begin());
    first = fmt::format("; the first that is missing is microbatch {} in stage {}",
                        cell % microbatches_, cell / microbatches_);
  }
  return fmt::format("step {} was committed with {} of {} contributions{}", step, counted, all,
                     first);
}

}  // namespace swarmline
