#include "engine/checkpoint/retention.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "engine/store/files.h"

namespace swarmline {
namespace {

// Those with the lowest losses, of two the newer one.
std::set<std::string> best_of(const std::vector<CheckpointEntry>& newest_first,
                              const Retention& retention) {
  std::vector<std::pair<double, std::size_t>> evaluated;
  for (std::size_t i = 0; i < newest_first.size(); ++i)
    if (const auto loss = retention.held_out.find(newest_first[i].step);
        loss != retention.held_out.end())
      evaluated.emplace_back(loss->second, i);
  std::ranges::sort(evaluated);
  evaluated.resize(std::min<std::size_t>(evaluated.size(), retention.best));
  std::set<std::string> best;
  for (const auto& [loss, number] : evaluated) best.insert(newest_first[number].path);
  return best;
}

// Of the checkpoints of a folder those that are whole, newest first, as far as was looked.
class WholeCheckpoints {
 public:
  explicit WholeCheckpoints(const Pruning& pruning) : pruning_(pruning) {}

  // One that can't be read now, or by this program, is no candidate, and is left alone.
  Result<void> offer(const CheckpointEntry& entry) {
    const auto is_whole = look(entry, Verify::kSizes);
    if (!is_whole) return std::unexpected(is_whole.error());
    if (*is_whole) whole_.push_back(entry);
    return {};
  }
  // Those that stay. Whoever turns out to be damaged makes room for another.
  Result<std::vector<bool>> choose(const Retention& retention) {
    while (true) {
      std::vector<bool> stays = kept_by(retention, whole_);
      const auto damaged = first_damaged(stays);
      if (!damaged) return std::unexpected(damaged.error());
      if (*damaged == whole_.size()) return stays;
      whole_.erase(whole_.begin() + static_cast<std::ptrdiff_t>(*damaged));
    }
  }
  const std::vector<CheckpointEntry>& newest_first() const { return whole_; }
  std::vector<std::string> take_set_aside() { return std::move(set_aside_); }

 private:
  Result<bool> look(const CheckpointEntry& entry, Verify verify) {
    const auto manifest = read_checkpoint(entry.path, verify);
    if (manifest) return true;
    if (!is_damage(manifest.error())) return false;
    log(LogLevel::kWarn, "checkpoint set aside: {}", manifest.error().what);
    set_aside_.push_back(entry.path);
    if (!pruning_.only_look) SWARMLINE_TRY(set_aside_damaged(entry.path));
    return false;
  }
  // whole_.size(): none is.
  Result<std::size_t> first_damaged(const std::vector<bool>& stays) {
    if (pruning_.verify == Verify::kSizes) return whole_.size();
    for (std::size_t i = 0; i < whole_.size(); ++i) {
      if (!stays[i] || !read_.insert(whole_[i].path).second) continue;
      const auto is_whole = look(whole_[i], Verify::kContents);
      if (!is_whole) return std::unexpected(is_whole.error());
      if (!*is_whole) return i;
    }
    return whole_.size();
  }

  const Pruning& pruning_;
  std::vector<CheckpointEntry> whole_;
  std::set<std::string> read_;  // paths
  std::vector<std::string> set_aside_;
};

}  // namespace

std::vector<bool> kept_by(const Retention& retention,
                          const std::vector<CheckpointEntry>& newest_first) {
  const std::set<std::string> best = best_of(newest_first, retention);
  std::vector<bool> stays(newest_first.size());
  for (std::size_t i = 0; i < newest_first.size(); ++i) {
    const CheckpointEntry& entry = newest_first[i];
    const bool round = retention.every_steps > 0 && entry.step % retention.every_steps == 0;
    stays[i] = i < retention.newest || round || best.contains(entry.path);
  }
  return stays;
}

Result<Pruned> prune_checkpoints(const std::string& checkpoints_folder, const Retention& retention,
                                 const Pruning& pruning) {
  SWARMLINE_CHECK(retention.newest >= 1);
  auto entries = list_checkpoints(checkpoints_folder);
  if (!entries) return std::unexpected(std::move(entries).error());
  WholeCheckpoints whole(pruning);
  for (auto entry = entries->rbegin(); entry != entries->rend(); ++entry)
    SWARMLINE_TRY(whole.offer(*entry));
  const auto stays = whole.choose(retention);
  if (!stays) return std::unexpected(stays.error());
  Pruned pruned{.removed = {}, .set_aside = whole.take_set_aside()};
  for (std::size_t i = 0; i < stays->size(); ++i) {
    if ((*stays)[i]) continue;
    pruned.removed.push_back(whole.newest_first()[i].path);
    if (!pruning.only_look) SWARMLINE_TRY(remove_folder(pruned.removed.back()));
  }
  if (!pruning.only_look)
    SWARMLINE_TRY(remove_damaged_checkpoints(checkpoints_folder, retention.newest));
  return pruned;
}

}  // namespace swarmline
