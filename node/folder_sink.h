// The coordinator's checkpoints into the run folder.
//   Thread:    the coordinator's control thread; files are written on the device's.
//   Ownership: the device outlives the sink and is used by nobody else. What is abandoned is
//              removed on the device's thread.
//   Errors:    those of CheckpointWriter.
//   Bounds:    kJobsMax on their way to the disk; of what is asked beyond that nothing is heard.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/limits.h"
#include "engine/checkpoint/checkpoint_writer.h"
#include "engine/checkpoint/retention.h"
#include "engine/device/device.h"
#include "pipeline/coordinator/coordinator.h"

namespace swarmline {

class FolderSink final : public CheckpointSink {
 public:
  // Of the device: two of each part, and a few.
  static constexpr int kJobsMax = 2 * Limits::stages_max * kCheckpointPartsMax + 64;

  // Which of the checkpoints stay; asked when another one is in place, on the device's thread.
  using Retain = std::function<Retention()>;
  // Its path; on the control thread.
  using InPlace = std::function<void(const std::string&)>;
  // `manifest`: what does not change between checkpoints. `token`: what a file in the folder says
  // to peers that may write there; empty: none may. `in_place`: told of each that is.
  FolderSink(std::string checkpoints_folder, Manifest manifest, Retain retain, Device& device,
             std::string token = {}, InPlace in_place = {});

  void begin(const Description& description, Done done) override;
  void write_piece(CheckpointPart part, std::uint64_t offset, SharedBytes bytes,
                   Done done) override;
  void finish_part(CheckpointPart part, std::uint64_t size, const std::string& sha256,
                   Done done) override;
  void adopt_part(CheckpointPart part, std::uint64_t size, const std::string& sha256,
                  Done done) override;
  std::optional<Shared> shared() const override;
  void commit(Committed done) override;
  void abandon() override;

 private:
  struct Open {  // a checkpoint that is being written; touched on the device's thread alone
    std::unique_ptr<CheckpointWriter> writer;
    Manifest manifest;
    std::string path;  // once it is in place
  };
  using Body = std::function<Result<void>(Open&)>;
  static Result<void> offer(const std::string& folder, const std::string& token);
  void submit(Body body, Done done);
  Manifest manifest_of(const Description& description) const;

  std::string folder_;
  std::string token_;
  Manifest template_;
  Retain retain_;
  Device& device_;
  InPlace in_place_;
  std::shared_ptr<Open> open_;  // the newest one
};

Manifest manifest_for(const RunConfig& config, const ModelSpec& model);

}  // namespace swarmline
