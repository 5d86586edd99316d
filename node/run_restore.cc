#include "node/run_restore.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"

namespace swarmline {

std::optional<CheckpointStore> store_of(const RunConfig& config) {
  if (config.checkpoint.store.empty()) return std::nullopt;
  return CheckpointStore(
      CheckpointStore::of_run(config.checkpoint.store, config.run.name, config.checkpoint.python));
}

Result<std::optional<std::string>> bring_newest(const CheckpointStore& store,
                                                const std::string& checkpoints_folder,
                                                const std::optional<CheckpointEntry>& than) {
  auto stored = store.list();
  if (!stored) return std::unexpected(std::move(stored).error());
  for (; !stored->empty(); stored->pop_back()) {
    const StoredCheckpoint& newest = stored->back();
    const std::pair key(newest.entry.era, newest.entry.step);
    if (than && key <= std::pair(than->era, than->step)) break;
    const std::string name = store.shown() + "/" + newest.entry.path;
    if (!newest.damage.empty()) {
      log(LogLevel::kWarn, "checkpoint passed over: {}: {}", name, newest.damage);
      continue;
    }
    if (!newest.manifest.optimizer_state) continue;
    auto path = store.pull(newest, checkpoints_folder);
    if (path) {
      log(LogLevel::kInfo, "{} is fetched into {}", name, *path);
      return std::optional(std::move(*path));
    }
    if (!is_damage(path.error())) return std::unexpected(std::move(path).error());
    log(LogLevel::kWarn, "checkpoint passed over: {}: {}", name, path.error().what);
  }
  return std::optional<std::string>();
}

Result<void> restore_run(const RunConfig& config, const RunFolder& folder, bool fresh) {
  const auto store = store_of(config);
  if (!store || (!fresh && folder.holds_a_run())) return {};
  if (!fresh) {
    const auto brought = bring_newest(*store, folder.checkpoints());
    if (!brought) return std::unexpected(brought.error());
    return {};
  }
  const auto stored = store->list();
  if (!stored) return std::unexpected(stored.error());
  if (stored->empty()) return {};
  return fail(ErrorCode::kUserMistake,
              fmt::format("{} holds {} checkpoints of a run of this name, which --fresh does not "
                          "move; give the new run another name by --name NAME, or remove them by "
                          "swarmline checkpoint prune {} --all",
                          store->shown(), stored->size(), store->shown()));
}

}  // namespace swarmline
