#include "node/folder_sink.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/log.h"
#include "engine/checkpoint/checkpoint_folder.h"
#include "engine/store/files.h"
#include "node/part_folder.h"

namespace swarmline {

static_assert(kCheckpointPartsMax == kStagePartsMax);

FolderSink::FolderSink(std::string checkpoints_folder, Manifest manifest, Retain retain,
                       Device& device, std::string token, InPlace in_place)
    : folder_(std::move(checkpoints_folder)),
      token_(std::move(token)),
      template_(std::move(manifest)),
      retain_(std::move(retain)),
      device_(device),
      in_place_(std::move(in_place)) {
  if (token_.empty()) return;
  open_ = std::make_shared<Open>();
  submit([folder = folder_, token = token_](Open&) { return offer(folder, token); },
         [](const Result<void>& offered) {
           if (!offered) log(LogLevel::kWarn, "{}", offered.error().what);
         });
  open_.reset();
}

Result<void> FolderSink::offer(const std::string& folder, const std::string& token) {
  SWARMLINE_TRY(make_folders(folder));
  return write_text_file_atomically(folder + "/" + kSharedToken, token);
}

std::optional<CheckpointSink::Shared> FolderSink::shared() const {
  if (token_.empty()) return std::nullopt;
  const auto path = std::filesystem::absolute(folder_).lexically_normal();
  return Shared{.path = path.string(), .token = token_};
}

void FolderSink::submit(Body body, Done done) {
  Job job;
  job.body = [open = open_, body = std::move(body)]() -> Result<void> {
    if (!open) return fail(ErrorCode::kRefused, "no checkpoint is being written");
    return body(*open);
  };
  const auto submitted = device_.submit(
      std::move(job), [done = std::move(done)](const JobReport& report) { done(report.result); });
  if (!submitted) log(LogLevel::kWarn, "the disk does not keep up: {}", submitted.error().what);
}

Manifest FolderSink::manifest_of(const Description& description) const {
  Manifest manifest = template_;
  manifest.step = description.version;
  manifest.version = description.version;
  manifest.era = description.era.value;
  manifest.optimizer_state = description.optimizer_state;
  manifest.updates = description.updates;
  manifest.tokens = description.tokens;
  for (const StageSpec& stage : description.stages) {
    if (!stage.has_embedding() && manifest.model.boundary != BoundaryKind::kNone)
      manifest.boundaries.push_back(stage.first_layer);
    manifest.stages.push_back(
        {.parts = {}, .first_layer = stage.first_layer, .last_layer = stage.last_layer});
  }
  return manifest;
}

void FolderSink::begin(const Description& description, Done done) {
  open_ = std::make_shared<Open>();
  submit(
      [folder = folder_, manifest = manifest_of(description), parts = description.parts,
       attempt = description.attempt](Open& open) -> Result<void> {
        auto writer = CheckpointWriter::begin(folder, manifest.step, parts, attempt);
        if (!writer) return std::unexpected(std::move(writer).error());
        open.writer = std::make_unique<CheckpointWriter>(std::move(*writer));
        open.manifest = manifest;
        return {};
      },
      std::move(done));
}

void FolderSink::write_piece(CheckpointPart part, std::uint64_t offset, SharedBytes bytes,
                             Done done) {
  submit(
      [part, offset, bytes = std::move(bytes)](Open& open) -> Result<void> {
        if (!open.writer) return fail(ErrorCode::kRefused, "the checkpoint was not begun");
        auto kept = open.writer->write_piece(part.stage.value, offset, bytes.view(), part.part);
        if (!kept && kept.error().code == ErrorCode::kCorrupt)
          return fail(ErrorCode::kIo, kept.error().what);  // the disk's trouble, not the sender's
        return kept;
      },
      std::move(done));
}

void FolderSink::finish_part(CheckpointPart part, std::uint64_t size, const std::string& sha256,
                             Done done) {
  submit(
      [part, size, sha256](Open& open) -> Result<void> {
        if (!open.writer) return fail(ErrorCode::kRefused, "the checkpoint was not begun");
        return open.writer->finish_stage(part.stage.value, size, sha256, part.part);
      },
      std::move(done));
}

void FolderSink::adopt_part(CheckpointPart part, std::uint64_t size, const std::string& sha256,
                            Done done) {
  submit(
      [part, size, sha256](Open& open) -> Result<void> {
        if (!open.writer) return fail(ErrorCode::kRefused, "the checkpoint was not begun");
        return open.writer->adopt_part(part.stage.value, part.part, size, sha256);
      },
      std::move(done));
}

void FolderSink::commit(Committed done) {
  submit(
      [folder = folder_, retain = retain_](Open& open) -> Result<void> {
        if (!open.writer) return fail(ErrorCode::kRefused, "the checkpoint was not begun");
        auto path = open.writer->commit(std::move(open.manifest));
        open.writer.reset();
        if (!path) return std::unexpected(std::move(path).error());
        open.path = std::move(*path);
        // The new checkpoint stands whether or not an old one could be removed.
        if (auto pruned = prune_checkpoints(folder, retain()); !pruned)
          log(LogLevel::kWarn, "{}", pruned.error().what);
        return {};
      },
      [open = open_, in_place = in_place_, done = std::move(done)](const Result<void>& committed) {
        if (!committed) return done(std::unexpected(committed.error()));
        if (in_place) in_place(open->path);
        done(open->path);
      });
}

void FolderSink::abandon() {
  if (!open_) return;
  submit(
      [](Open& open) -> Result<void> {
        open.writer.reset();
        return {};
      },
      [](const Result<void>&) {});
  open_.reset();
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
