#include "engine/config/begun_run.h"

#include <algorithm>
#include <functional>
#include <utility>
#include <variant>

#include <fmt/format.h>

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
                                          "run.wait_seconds",
                                          "pipeline.peers",
                                          "pipeline.order",
                                          "pipeline.recompute",
                                          "pipeline.in_flight",
                                          "pipeline.wiring",
                                          "optimizer.state_memory"};
// Where a segment's data begins: the run's own word.
constexpr std::string_view kPositionKeys[] = {"data.from_step", "data.from_sequence"};
constexpr std::string_view kSegmentSections[] = {"data", "codec"};
constexpr std::string_view kMaskKey = "data.mask_documents";  // of the model's mathematics
constexpr std::string_view kSegmentKeys[] = {"run.on_nonfinite",         "batch.batch",
                                             "batch.microbatch",         "optimizer.lr",
                                             "optimizer.weight_decay",   "optimizer.clip",
                                             "optimizer.schedule",       "optimizer.warmup_steps",
                                             "optimizer.lr_decay_steps", "optimizer.decay_ratio",
                                             "optimizer.final_lr",       "pipeline.delay"};
// Checkpoints may be cut anew, unless parameters are where the cut is.
constexpr std::string_view kCutKeys[] = {"pipeline.stages", "pipeline.layers"};

bool is_in(std::span<const std::string_view> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

std::string path_of(const KeySpec& spec) {
  return fmt::format("{}.{}", spec.section, spec.key);
}

bool is_of_segment(const KeySpec& spec) {
  const std::string path = path_of(spec);
  if (is_in(kPositionKeys, path) || path == kMaskKey) return false;
  return is_in(kSegmentSections, spec.section) || is_in(kSegmentKeys, path);
}

bool is_free(const KeySpec& spec, bool cut_may) {
  const std::string path = path_of(spec);
  return is_in(kFreeSections, spec.section) || is_in(kFreeKeys, path) ||
         is_in(kPositionKeys, path) || (cut_may && is_in(kCutKeys, path));
}

bool ends_with_run(const OptimizerSection& optimizer) {
  return optimizer.schedule != LearningSchedule::kConstant && optimizer.lr_decay_steps == 0;
}

std::vector<KeyChange> changes_of(const RunConfig& begun, const RunConfig& wanted,
                                  const std::function<bool(const KeySpec&)>& counts) {
  RunConfig before = begun, now = wanted;  // fields are reached through pointers to non-const
  std::vector<KeyChange> changes;
  for (const KeySpec& spec : run_keys()) {
    if (!counts(spec)) continue;
    std::string had = value_text(spec, {.run = &before});
    std::string has = value_text(spec, {.run = &now});
    if (had != has)
      changes.push_back({.key = path_of(spec), .before = std::move(had), .after = std::move(has)});
  }
  return changes;
}

}  // namespace

std::optional<std::string> fixed_difference(const RunConfig& begun, const RunConfig& wanted) {
  const bool cut_may = begun.model.boundary == BoundaryKind::kNone;
  const auto fixed = changes_of(begun, wanted, [cut_may](const KeySpec& spec) {
    return !is_free(spec, cut_may) && !is_of_segment(spec);
  });
  if (fixed.empty()) return std::nullopt;
  const KeyChange& first = fixed.front();
  return fmt::format("{}: found {}, but the run began with {}", first.key, first.after,
                     first.before);
}

std::vector<KeyChange> segment_changes(const RunConfig& begun, const RunConfig& wanted) {
  const bool by_steps = ends_with_run(begun.optimizer) || ends_with_run(wanted.optimizer);
  return changes_of(begun, wanted, [by_steps](const KeySpec& spec) {
    return is_of_segment(spec) || (by_steps && path_of(spec) == kStepsKey);
  });
}

RunConfig with_segment_of(const RunConfig& own, const RunConfig& run, bool with_data) {
  RunConfig mixed = own, from = run;
  for (const KeySpec& spec : run_keys()) {
    if (!is_of_segment(spec) || (!with_data && spec.section == "data")) continue;
    std::visit([&](auto* to) { *to = *std::get<decltype(to)>(spec.field({.run = &from})); },
               spec.field({.run = &mixed}));
  }
  return mixed;
}

bool changes_data(const std::vector<KeyChange>& changes) {
  return std::ranges::any_of(changes,
                             [](const KeyChange& one) { return one.key.starts_with("data."); });
}

bool changes_codecs(const std::vector<KeyChange>& changes) {
  return std::ranges::any_of(changes,
                             [](const KeyChange& one) { return one.key.starts_with("codec."); });
}

}  // namespace swarmline
