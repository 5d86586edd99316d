#include "cli/folder_source.h"

#include <utility>

#include <fmt/format.h>

#include "engine/base/log.h"
#include "engine/checkpoint/checkpoint_folder.h"

namespace swarmline {
namespace {

Result<Manifest> read_whole(const std::string& path) {
  auto manifest = read_checkpoint(path, Verify::kContents);
  if (manifest && !manifest->optimizer_state)
    return fail(ErrorCode::kIncompatible, path + " holds no optimizer state");
  return manifest;
}

}  // namespace

Result<std::optional<CheckpointSource::Saved>> FolderSource::open_newest() {
  open_.reset();
  auto entries = list_checkpoints(folder_);
  if (!entries) return std::unexpected(std::move(entries).error());
  for (; !entries->empty(); entries->pop_back()) {
    const std::string& path = entries->back().path;
    const auto manifest = read_whole(path);
    if (!manifest) {
      log(LogLevel::kWarn, "checkpoint passed over: {}", manifest.error().what);
      continue;
    }
    auto reader = CheckpointReader::open(path);
    if (!reader) return std::unexpected(std::move(reader).error());
    open_.emplace(std::move(*reader));
    return Saved{.version = manifest->version, .updates = manifest->updates, .path = path};
  }
  return std::nullopt;
}

Result<BytesView> FolderSource::tensor(const std::string& name) const {
  if (!open_) return fail(ErrorCode::kNotFound, "no checkpoint is open");
  return open_->find(name);
}

}  // namespace swarmline
