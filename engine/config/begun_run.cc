#include <algorithm>

#include <fmt/format.h>

#include "engine/config/load.h"
#include "engine/config/schema.h"

namespace swarmline {
namespace {

// What neither the data nor the arithmetic of a run depends on.
constexpr std::string_view kFreeSections[] = {"wiring", "balance",  "checkpoint", "eval",
                                              "net",    "security", "log",        "money"};
constexpr std::string_view kFreeKeys[] = {"run.name",
                                          "run.dir",
                                          "run.steps",
                                          "run.etcd",
                                          "run.etcd_lease_seconds",
                                          "pipeline.peers",
                                          "pipeline.order",
                                          "pipeline.recompute",
                                          "pipeline.in_flight",
                                          "pipeline.wiring",
                                          "optimizer.state_memory"};
// Checkpoints may be cut anew, unless parameters are where the cut is.
constexpr std::string_view kCutKeys[] = {"pipeline.stages", "pipeline.layers"};

bool is_in(std::span<const std::string_view> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

bool may_change(const KeySpec& spec, bool cut_may) {
  const std::string path = fmt::format("{}.{}", spec.section, spec.key);
  return is_in(kFreeSections, spec.section) || is_in(kFreeKeys, path) ||
         (cut_may && is_in(kCutKeys, path));
}

}  // namespace

std::optional<std::string> fixed_difference(const RunConfig& begun, const RunConfig& wanted) {
  RunConfig before = begun, now = wanted;  // fields are reached through pointers to non-const
  const bool cut_may = before.model.boundary == BoundaryKind::kNone;
  for (const KeySpec& spec : run_keys()) {
    if (may_change(spec, cut_may)) continue;
    const std::string had = value_text(spec, {.run = &before});
    const std::string has = value_text(spec, {.run = &now});
    if (had != has)
      return fmt::format("{}.{}: found {}, but the run began with {}", spec.section, spec.key, has,
                         had);
  }
  return std::nullopt;
}

}  // namespace swarmline
