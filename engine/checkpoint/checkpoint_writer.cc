#include "engine/checkpoint/checkpoint_writer.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/limits.h"
#include "base/log.h"
#include "engine/checkpoint/checkpoint_folder.h"

namespace swarmline {

namespace {

std::string part_name(std::uint32_t part) {
  return part == 0 ? "" : fmt::format(" part {}", part);
}

}  // namespace

Result<CheckpointWriter> CheckpointWriter::begin(const std::string& checkpoints_folder,
                                                 std::uint64_t step,
                                                 const std::vector<std::uint32_t>& parts,
                                                 std::uint64_t attempt) {
  SWARMLINE_CHECK(!parts.empty() && parts.size() <= std::size_t{Limits::stages_max});
  CheckpointWriter writer;
  writer.step_ = step;
  writer.target_ = checkpoint_path(checkpoints_folder, step);
  for (const std::uint32_t count : parts) {
    SWARMLINE_CHECK(count >= 1 && count <= kStagePartsMax);
    writer.stages_.emplace_back(count);
  }
  const std::string partial = partial_checkpoint_path(checkpoints_folder, step, attempt);
  SWARMLINE_TRY(remove_partial_checkpoints(checkpoints_folder));
  SWARMLINE_TRY(make_folders(partial));
  writer.partial_ = partial;
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

std::string CheckpointWriter::part_path(std::uint32_t stage, std::uint32_t part) const {
  return partial_ + "/" + part_file_name(stage, part, stages_[stage].size());
}

Result<CheckpointWriter::PartState*> CheckpointWriter::unfinished(std::uint32_t stage,
                                                                  std::uint32_t part) {
  SWARMLINE_CHECK(!partial_.empty());
  if (stage >= stages_.size() || part >= stages_[stage].size()) {
    return fail(ErrorCode::kRefused, fmt::format("checkpoint of step {}: there is no stage {}{}",
                                                 step_, stage, part_name(part)));
  }
  PartState& state = stages_[stage][part];
  if (state.finished) {
    return fail(ErrorCode::kRefused, fmt::format("checkpoint of step {}: stage {}{} is finished",
                                                 step_, stage, part_name(part)));
  }
  return &state;
}

Result<CheckpointWriter::PartState*> CheckpointWriter::open_part(std::uint32_t stage,
                                                                 std::uint32_t part) {
  const Result<PartState*> found = unfinished(stage, part);
  if (!found || (*found)->file) return found;
  Result<AtomicFile> file = AtomicFile::create(part_path(stage, part));
  if (!file) return std::unexpected(file.error());
  (*found)->file = std::move(*file);
  (*found)->hash.emplace();
  (*found)->hashed_bytes = 0;
  return found;
}

Result<void> CheckpointWriter::write_piece(std::uint32_t stage, std::uint64_t offset_bytes,
                                           BytesView bytes, std::uint32_t part) {
  const Result<PartState*> opened = open_part(stage, part);
  if (!opened) return std::unexpected(opened.error());
  PartState& state = **opened;
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
                                            const std::string& sha256, std::uint32_t part) {
  const Result<PartState*> opened = open_part(stage, part);
  if (!opened) return std::unexpected(opened.error());
  PartState& state = **opened;
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

Result<void> CheckpointWriter::adopt_part(std::uint32_t stage, std::uint32_t part,
                                          std::uint64_t size_bytes, const std::string& sha256) {
  const Result<PartState*> found = unfinished(stage, part);
  if (!found) return std::unexpected(found.error());
  const Result<std::uint64_t> written = file_bytes(part_path(stage, part));
  if (!written) return std::unexpected(written.error());
  if (*written != size_bytes)
    return fail(ErrorCode::kCorrupt,
                fmt::format("checkpoint of step {}: stage {}{} has {} bytes here, {} were written",
                            step_, stage, part_name(part), *written, size_bytes));
  PartState& state = **found;
  state.finished = true;
  state.bytes = size_bytes;
  state.sha256 = sha256;
  return {};
}

bool CheckpointWriter::stage_finished(std::uint32_t stage) const {
  return stage < stages_.size() && std::ranges::all_of(stages_[stage], &PartState::finished);
}

bool CheckpointWriter::complete() const {
  return std::ranges::all_of(
      stages_, [](const auto& parts) { return std::ranges::all_of(parts, &PartState::finished); });
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
    manifest.stages[i].parts.clear();
    for (std::uint32_t part = 0; part < stages_[i].size(); ++part)
      manifest.stages[i].parts.push_back({.file = part_file_name(i, part, stages_[i].size()),
                                          .sha256 = stages_[i][part].sha256,
                                          .bytes = stages_[i][part].bytes});
  }
  SWARMLINE_TRY(write_text_file_atomically(partial_ + "/manifest.json", to_json(manifest)));
  SWARMLINE_TRY(replace_folder(partial_, target_));
  partial_.clear();
  return target_;
}

}  // namespace swarmline
