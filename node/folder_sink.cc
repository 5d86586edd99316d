#include "node/folder_sink.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "engine/checkpoint/checkpoint_folder.h"

namespace swarmline {

FolderSink::FolderSink(std::string checkpoints_folder, Manifest manifest, std::uint32_t keep)
    : folder_(std::move(checkpoints_folder)), template_(std::move(manifest)), keep_(keep) {}

Result<void> FolderSink::begin(const Description& description) {
  const auto stages = static_cast<std::uint32_t>(description.stages.size());
  auto writer = CheckpointWriter::begin(folder_, description.version, stages);
  if (!writer) return std::unexpected(std::move(writer).error());
  writer_ = std::make_unique<CheckpointWriter>(std::move(*writer));
  open_ = template_;
  open_.step = description.version;
  open_.version = description.version;
  open_.optimizer_state = description.optimizer_state;
  open_.updates = description.updates;
  for (const StageSpec& stage : description.stages) {
    if (!stage.has_embedding() && open_.model.boundary != BoundaryKind::kNone)
      open_.boundaries.push_back(stage.first_layer);
    open_.stages.push_back(
        {.parts = {}, .first_layer = stage.first_layer, .last_layer = stage.last_layer});
  }
  return {};
}

Result<void> FolderSink::write_piece(StageId stage, std::uint64_t offset, BytesView bytes) {
  if (!writer_) return fail(ErrorCode::kRefused, "no checkpoint is being written");
  return writer_->write_piece(stage.value, offset, bytes);
}

Result<void> FolderSink::finish_stage(StageId stage, std::uint64_t size,
                                      const std::string& sha256) {
  if (!writer_) return fail(ErrorCode::kRefused, "no checkpoint is being written");
  return writer_->finish_stage(stage.value, size, sha256);
}

Result<std::string> FolderSink::commit() {
  if (!writer_) return fail(ErrorCode::kRefused, "no checkpoint is being written");
  auto path = writer_->commit(std::move(open_));
  writer_.reset();
  if (!path) return path;
  // The new checkpoint stands whether or not an old one could be removed.
  if (auto kept = keep_newest_checkpoints(folder_, std::max(keep_, 1U)); !kept) {
    log(LogLevel::kWarn, "{}", kept.error().what);
  }
  return path;
}

Manifest manifest_for(const RunConfig& config, const ModelSpec& model) {
  return {.run = config.run.name,
          .config_version = config.config_version,
          .step = 0,
          .version = 0,
          .sequence = config.batch.sequence,
          .model = model.shape,
          .boundaries = {},
          .optimizer_state = false,
          .stages = {}};
}

}  // namespace swarmline
