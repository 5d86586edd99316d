// The coordinator's checkpoints into the run folder.
//   Thread: the coordinator's control thread; each call writes its own bytes.
//   Errors: those of CheckpointWriter.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "engine/checkpoint/checkpoint_writer.h"
#include "pipeline/coordinator/coordinator.h"

namespace swarmline {

class FolderSink final : public CheckpointSink {
 public:
  // `manifest`: what does not change between checkpoints. The newest `keep` are kept.
  FolderSink(std::string checkpoints_folder, Manifest manifest, std::uint32_t keep);

  Result<void> begin(const Description& description) override;
  Result<void> write_piece(StageId stage, std::uint64_t offset, BytesView bytes) override;
  Result<void> finish_stage(StageId stage, std::uint64_t size, const std::string& sha256) override;
  Result<std::string> commit() override;
  void abandon() override { writer_.reset(); }

 private:
  std::string folder_;
  Manifest template_;
  std::uint32_t keep_;
  Manifest open_;  // of the checkpoint being written
  std::unique_ptr<CheckpointWriter> writer_;
};

Manifest manifest_for(const RunConfig& config, const ModelSpec& model);

}  // namespace swarmline
