#include "node/folder_source.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/log.h"
#include "engine/checkpoint/checkpoint_folder.h"
#include "node/run_restore.h"

namespace swarmline {
namespace {

Result<Manifest> read_whole(const std::string& path) {
  auto manifest = read_checkpoint(path, Verify::kContents);
  if (manifest && !manifest->optimizer_state)
    return fail(ErrorCode::kIncompatible, path + " holds no optimizer state");
  return manifest;
}

Era era_from(std::uint64_t saved) {
  constexpr std::uint64_t kMost =
      std::numeric_limits<Era::rep>::max() / 2;  // a run never gets there
  return Era{static_cast<Era::rep>(std::min(saved, kMost))};
}

struct Opening {
  std::optional<CheckpointReader> reader;
  std::optional<CheckpointSource::Saved> saved;
};

Result<void> open_newest_of(const std::string& folder, Opening& opening) {
  auto entries = list_checkpoints(folder);
  if (!entries) return std::unexpected(std::move(entries).error());
  for (; !entries->empty(); entries->pop_back()) {
    const std::string& path = entries->back().path;
    const auto manifest = read_whole(path);
    if (!manifest && manifest.error().code == ErrorCode::kIo)  // it may be there all the same
      return std::unexpected(manifest.error());
    if (!manifest) {
      log(LogLevel::kWarn, "checkpoint passed over: {}", manifest.error().what);
      if (!is_damage(manifest.error())) continue;
      // Else it would count as one of the newest when old ones are removed.
      if (auto aside = set_aside_damaged(path); !aside)
        log(LogLevel::kWarn, "{}", aside.error().what);
      continue;
    }
    auto reader = CheckpointReader::open(path);
    if (!reader) return std::unexpected(std::move(reader).error());
    opening.reader.emplace(std::move(*reader));
    opening.saved = {.version = manifest->version,
                     .updates = manifest->updates,
                     .path = path,
                     .era = era_from(manifest->era)};
    return {};
  }
  return {};
}

// What the store has newer than the folder, the first of them that is whole.
Result<void> bring_newer(const CheckpointStore& store, const std::string& folder) {
  const auto newest = latest_checkpoint(folder);
  if (!newest) return std::unexpected(newest.error());
  const auto brought = bring_newest(store, folder, *newest);
  if (brought) return {};
  if (!*newest) return std::unexpected(brought.error());
  log(LogLevel::kWarn, "{}; the run goes on with {}", brought.error().what, (*newest)->path);
  return {};
}

// There is no run without them: damage is an error.
Result<void> open_initial(const std::string& folder, Opening& opening) {
  const std::string path = checkpoint_path(folder, 0);
  SWARMLINE_TRY(read_checkpoint(path, Verify::kContents));
  auto reader = CheckpointReader::open(path);
  if (!reader) return std::unexpected(std::move(reader).error());
  opening.reader.emplace(std::move(*reader));
  opening.saved = {.version = 0, .updates = 0, .path = path};
  return {};
}

}  // namespace

void FolderSource::open_newest(Opened done) {
  open_.reset();
  auto opening = std::make_shared<Opening>();
  Job job;
  job.body = [folder = folder_, initial = initial_, store = store_, opening]() -> Result<void> {
    if (store) SWARMLINE_TRY(bring_newer(*store, folder));
    SWARMLINE_TRY(open_newest_of(folder, *opening));
    if (opening->saved || initial.empty()) return {};
    return open_initial(initial, *opening);
  };
  const auto submitted =
      device_.submit(std::move(job), [this, opening, done = std::move(done)](JobReport report) {
        if (!report.result) return done(std::unexpected(std::move(report.result).error()));
        open_ = std::move(opening->reader);
        done(std::move(opening->saved));
      });
  SWARMLINE_CHECK(submitted.has_value());  // one call at a time
}

Result<BytesView> FolderSource::tensor(const std::string& name) const {
  if (!open_) return fail(ErrorCode::kNotFound, "no checkpoint is open");
  return open_->find(name);
}

}  // namespace swarmline
