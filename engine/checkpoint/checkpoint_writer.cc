#include "engine/checkpoint/checkpoint_writer.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/limits.h"
#include "base/log.h"
#include "engine/checkpoint/checkpoint_folder.h"

namespace swarmline {

Result<CheckpointWriter> CheckpointWriter::begin(const std::string& checkpoints_folder,
                                                 std::uint64_t step, std::uint32_t stages) {
  SWARMLINE_CHECK(stages >= 1 && stages <= std::uint32_t{Limits::stages_max});
  CheckpointWriter writer;
  writer.step_ = step;
  writer.target_ = checkpoint_path(checkpoints_folder, step);
  const std::string partial = writer.target_ + ".partial";
  SWARMLINE_TRY(remove_folder(partial));
  SWARMLINE_TRY(make_folders(partial));
  writer.partial_ = partial;
  writer.stages_.resize(stages);
  return writer;
}

CheckpointWriter::CheckpointWriter(CheckpointWriter&& other) noexcept
    : partial_(std::exchange(other.partial_, {})),
      target_(std::move(other.target_)),
      step_(other.step_),
      stages_(std::move(other.stages_)) {}

CheckpointWriter::~CheckpointWriter() {
  if (partial_.empty()) return;
  stages_.clear();
  if (const Result<void> removed = remove_folder(partial_); !removed) {
    log(LogLevel::kWarn, "{}", removed.error().what);
  }
}

std::string CheckpointWriter::stage_path(std::uint32_t stage) const {
  return partial_ + "/" + stage_file_name(stage);
}

Result<CheckpointWriter::StageState*> CheckpointWriter::open_stage(std::uint32_t stage) {
  SWARMLINE_CHECK(!partial_.empty());
  if (stage >= stages_.size()) {
    return fail(ErrorCode::kRefused,
                fmt::format("checkpoint of step {}: there is no stage {}", step_, stage));
  }
  StageState& state = stages_[stage];
  if (state.finished) {
    return fail(ErrorCode::kRefused,
                fmt::format("checkpoint of step {}: stage {} is finished", step_, stage));
  }
  if (!state.file) {
    Result<AtomicFile> file = AtomicFile::create(stage_path(stage));
    if (!file) return std::unexpected(file.error());
    state.file = std::move(*file);
    state.hash.emplace();
    state.hashed_bytes = 0;
  }
  return &state;
}

Result<void> CheckpointWriter::write_piece(std::uint32_t stage, std::uint64_t offset_bytes,
                                           BytesView bytes) {
  const Result<StageState*> opened = open_stage(stage);
  if (!opened) return std::unexpected(opened.error());
  StageState& state = **opened;
  if (offset_bytes > kStageFileBytesMax || bytes.size() > kStageFileBytesMax - offset_bytes) {
    return fail(ErrorCode::kRefused,
                fmt::format("checkpoint of step {}: a piece of stage {} ends beyond {} bytes",
                            step_, stage, kStageFileBytesMax));
  }
  SWARMLINE_TRY(state.file->write_at(offset_bytes, bytes));
  if (state.hash && offset_bytes == state.hashed_bytes) {
    state.hash->update(bytes);
    state.hashed_bytes += bytes.size();
  } else {
    state.hash.reset();
  }
  return {};
}

Result<void> CheckpointWriter::finish_stage(std::uint32_t stage, std::uint64_t size_bytes,
                                            const std::string& sha256) {
  const Result<StageState*> opened = open_stage(stage);
  if (!opened) return std::unexpected(opened.error());
  StageState& state = **opened;
  // Whatever goes wrong from here, the stage starts over: its file is dropped on the way out.
  AtomicFile file = std::move(*state.file);
  state.file.reset();
  const std::uint64_t written = file.size_bytes();
  if (written != size_bytes) {
    return fail(ErrorCode::kCorrupt,
                fmt::format("checkpoint of step {}: {} bytes of stage {} came, {} were announced",
                            step_, written, stage, size_bytes));
  }
  std::string found;
  if (state.hash) {
    found = state.hash->finish_hex();
  } else {
    const Result<std::shared_ptr<const MappedFile>> mapped = MappedFile::open(file.partial_path());
    if (!mapped) return std::unexpected(mapped.error());
    found = sha256_hex((*mapped)->bytes());
  }
  if (found != sha256) {
    return fail(
        ErrorCode::kCorrupt,
        fmt::format("checkpoint of step {}: stage {} came damaged, SHA-256 {} instead of {}", step_,
                    stage, found, sha256));
  }
  SWARMLINE_TRY(file.finish());
  state.hash.reset();
  state.finished = true;
  state.bytes = size_bytes;
  state.sha256 = std::move(found);
  return {};
}

bool CheckpointWriter::stage_finished(std::uint32_t stage) const {
  return stage < stages_.size() && stages_[stage].finished;
}

bool CheckpointWriter::complete() const {
  return std::ranges::all_of(stages_, &StageState::finished);
}

Result<std::string> CheckpointWriter::commit(Manifest manifest) {
  SWARMLINE_CHECK(!partial_.empty());
  SWARMLINE_CHECK(manifest.stages.size() == stages_.size());
  if (!complete()) {
    return fail(ErrorCode::kRefused,
                fmt::format("checkpoint of step {}: not all stages are there", step_));
  }
  manifest.step = step_;
  for (std::uint32_t i = 0; i < stages_.size(); ++i) {
    manifest.stages[i].file = stage_file_name(i);
    manifest.stages[i].bytes = stages_[i].bytes;
    manifest.stages[i].sha256 = stages_[i].sha256;
  }
  SWARMLINE_TRY(write_text_file_atomically(partial_ + "/manifest.json", to_json(manifest)));
  SWARMLINE_TRY(replace_folder(partial_, target_));
  partial_.clear();
  return target_;
}

}  // namespace swarmline
