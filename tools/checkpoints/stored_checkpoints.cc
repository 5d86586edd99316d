#include "tools/checkpoints/stored_checkpoints.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"
#include "node/run_folder.h"

namespace swarmline {
namespace {

std::string path_of(const CheckpointStore& store, const StoredCheckpoint& stored) {
  return store.shown() + "/" + stored.entry.path;
}

bool holds(const std::vector<StoredCheckpoint>& stored, const CheckpointEntry& entry) {
  return std::ranges::any_of(stored, [&](const StoredCheckpoint& one) {
    return one.damage.empty() && one.entry.era == entry.era && one.entry.step == entry.step;
  });
}

}  // namespace

Result<std::vector<ListedCheckpoint>> list_stored(const CheckpointStore& store) {
  const auto stored = store.list();
  if (!stored) return std::unexpected(stored.error());
  std::vector<ListedCheckpoint> listed;
  for (const StoredCheckpoint& one : *stored)
    listed.push_back({.name = one.entry.path,
                      .path = path_of(store, one),
                      .era = one.entry.era,
                      .step = one.entry.step,
                      .bytes = one.bytes,
                      .wall_seconds = one.wall_seconds,
                      .damage = one.damage,
                      .set_aside = false,
                      .optimizer_state = one.manifest.optimizer_state,
                      .loss = {},
                      .held_out = {}});
  return listed;
}

Result<std::vector<VerifiedCheckpoint>> verify_stored(const CheckpointStore& store) {
  const auto stored = store.list();
  if (!stored) return std::unexpected(stored.error());
  if (stored->empty())
    return fail(ErrorCode::kNotFound, fmt::format("there is no checkpoint in {}", store.shown()));
  std::vector<VerifiedCheckpoint> verified;
  for (const StoredCheckpoint& one : *stored) {
    if (one.unfinished) continue;
    auto damage = store.find_damage(one);
    if (!damage) return std::unexpected(std::move(damage).error());
    verified.push_back(
        {.path = path_of(store, one), .bytes = one.bytes, .damage = std::move(*damage)});
  }
  return verified;
}

Result<std::vector<std::string>> remove_stored(const CheckpointStore& store, bool only_look) {
  const auto stored = store.list();
  if (!stored) return std::unexpected(stored.error());
  std::vector<std::string> removed;
  for (const StoredCheckpoint& one : *stored) {
    if (!only_look) SWARMLINE_TRY(store.remove(one));
    removed.push_back(path_of(store, one));
  }
  return removed;
}

Result<std::vector<std::string>> push_checkpoints(const std::string& run_folder,
                                                  const CheckpointStore& store) {
  const auto entries = list_checkpoints(RunFolder(run_folder).checkpoints());
  if (!entries) return std::unexpected(entries.error());
  if (entries->empty())
    return fail(ErrorCode::kNotFound, fmt::format("{} has no checkpoint", run_folder));
  const auto stored = store.list();
  if (!stored) return std::unexpected(stored.error());
  std::vector<std::string> pushed;
  for (const CheckpointEntry& entry : *entries) {
    if (holds(*stored, entry)) continue;
    if (const auto whole = read_checkpoint(entry.path, Verify::kContents); !whole) {
      if (!is_damage(whole.error())) return std::unexpected(whole.error());
      log(LogLevel::kWarn, "checkpoint passed over: {}", whole.error().what);
      continue;
    }
    SWARMLINE_TRY(store.push(entry.path));
    pushed.push_back(entry.path);
  }
  return pushed;
}

Result<std::string> pull_checkpoint(const CheckpointStore& store, const std::string& run_folder,
                                    std::optional<std::uint64_t> step) {
  auto stored = store.list();
  if (!stored) return std::unexpected(std::move(stored).error());
  for (; !stored->empty(); stored->pop_back()) {
    const StoredCheckpoint& one = stored->back();
    if (step && one.entry.step != *step) continue;
    if (one.damage.empty()) return store.pull(one, RunFolder(run_folder).checkpoints());
    if (step)
      return fail(ErrorCode::kCorrupt, fmt::format("{}: {}", path_of(store, one), one.damage));
    log(LogLevel::kWarn, "checkpoint passed over: {}: {}", path_of(store, one), one.damage);
  }
  return fail(ErrorCode::kNotFound,
              step ? fmt::format("there is no checkpoint of step {} in {}", *step, store.shown())
                   : fmt::format("there is no whole checkpoint in {}", store.shown()));
}

}  // namespace swarmline
