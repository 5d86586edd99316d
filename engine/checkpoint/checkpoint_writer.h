// Receives a checkpoint in pieces and puts it in its place all at once.
//   Order:     begin(), then for every part of every stage pieces and finish_stage(), or
//              adopt_part() of one that somebody else has written into the folder, in any
//              interleaving, then commit(). Dropped before commit(): everything is removed.
//   Thread:    one. Each call blocks for its own bytes; finish_stage() and commit() fsync. Pieces
//              in file order are hashed as they come; otherwise finish_stage() reads the file once
//              more.
//   Errors:    kRefused (no such stage, already finished, out of bounds, not all stages there),
//              kCorrupt (size or SHA-256 is not what was announced; the stage starts over with its
//              next piece), kIo.
//   Bounds:    kStageFileBytesMax a part; a piece is as large as its sender's frame.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "base/units.h"
#include "engine/checkpoint/manifest.h"
#include "engine/checkpoint/sha256.h"
#include "engine/store/files.h"

namespace swarmline {

inline constexpr std::uint64_t kStageFileBytesMax = 1024 * kGiB;

class CheckpointWriter {
 public:
  // Makes CHECKPOINTS/step-N.ATTEMPT.partial; left-overs of earlier tries are removed. `parts`: how
  // many each stage has.
  static Result<CheckpointWriter> begin(const std::string& checkpoints_folder, std::uint64_t step,
                                        const std::vector<std::uint32_t>& parts,
                                        std::uint64_t attempt);
  static Result<CheckpointWriter> begin(const std::string& checkpoints_folder, std::uint64_t step,
                                        std::uint32_t stages) {
    return begin(checkpoints_folder, step, std::vector<std::uint32_t>(stages, 1), 0);
  }
  CheckpointWriter(CheckpointWriter&&) noexcept;
  CheckpointWriter& operator=(CheckpointWriter&&) = delete;
  ~CheckpointWriter();

  Result<void> write_piece(std::uint32_t stage, std::uint64_t offset_bytes, BytesView bytes,
                           std::uint32_t part = 0);
  Result<void> finish_stage(std::uint32_t stage, std::uint64_t size_bytes,
                            const std::string& sha256, std::uint32_t part = 0);
  // It lies in the folder under its name; its writer has synced it, and says what it is.
  Result<void> adopt_part(std::uint32_t stage, std::uint32_t part, std::uint64_t size_bytes,
                          const std::string& sha256);
  bool stage_finished(std::uint32_t stage) const;
  bool complete() const;  // every stage is finished
  // File names, sizes and hashes of `manifest.stages` are filled in, and its step; the caller gives
  // the layers, one entry a stage. An older checkpoint of the same step is replaced. Returns
  // step-N's path.
  Result<std::string> commit(Manifest manifest);

 private:
  struct PartState {
    std::optional<AtomicFile> file;  // being written
    std::optional<Sha256> hash;      // of what came so far, while it came in order
    std::uint64_t hashed_bytes = 0;
    bool finished = false;
    std::uint64_t bytes = 0;
    std::string sha256;
  };
  CheckpointWriter() = default;
  Result<PartState*> unfinished(std::uint32_t stage, std::uint32_t part);
  Result<PartState*> open_part(std::uint32_t stage, std::uint32_t part);
  std::string part_path(std::uint32_t stage, std::uint32_t part) const;

  std::string partial_;  // empty: committed or moved from
  std::string target_;
  std::uint64_t step_ = 0;
  std::vector<std::vector<PartState>> stages_;
};

}  // namespace swarmline
