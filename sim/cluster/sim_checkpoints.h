// Checkpoints of a simulated run: kept in memory, written and read over a simulated disk.
//   What:      SimCheckpoints is what lies on the disk, and outlives coordinators; each coordinator
//              writes by a SimCheckpointSink and reads by a SimCheckpointSource of its own. What a
//              coordinator that dies was writing is gone with it.
//   Ownership: runtime and SimCheckpoints outlive sinks and sources.
//   Thread:    that of the SimRuntime. Errors: kIo, as the disk has them.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "engine/runtime/runtime.h"
#include "pipeline/coordinator/coordinator.h"
#include "pipeline/stage/part_folder.h"
#include "sim/doors/sim_disk.h"

namespace swarmline {

// Keeps the newest complete checkpoints, in the order in which they were made.
class SimCheckpoints {
 public:
  static constexpr std::size_t kKeptMax = 64;
  using Files = std::map<CheckpointPart, std::string>;
  struct Checkpoint {
    CheckpointSink::Description description;
    Files files;
    std::map<CheckpointPart, std::string> hashes;
  };
  // Written by peers: by attempt.
  using Written = std::map<std::pair<std::uint64_t, CheckpointPart>, std::string>;

  explicit SimCheckpoints(Rng rng) : disk_(rng) {}

  SimDisk& disk() { return disk_; }
  Written& written() { return written_; }
  std::string add(Checkpoint checkpoint);  // returns its path
  // The newest whole one, and its tensors by name; they stay where they are.
  Result<std::optional<CheckpointSource::Saved>> open_newest(
      std::map<std::string, BytesView>& tensors) const;

  Files files() const { return complete_.empty() ? Files() : complete_.back().files; }
  std::size_t complete() const { return complete_.size(); }
  std::uint64_t version() const {  // of the newest; 0: none
    return complete_.empty() ? 0 : complete_.back().description.version;
  }
  void damage_newest();  // one byte of a parameter

 private:
  SimDisk disk_;
  Written written_;
  std::deque<Checkpoint> complete_;  // their bytes stay where they are
};

class SimCheckpointSink final : public CheckpointSink {
 public:
  SimCheckpointSink(Runtime& runtime, SimCheckpoints& kept) : runtime_(runtime), kept_(kept) {}

  void begin(const Description& description, Done done) override;
  void write_piece(CheckpointPart part, std::uint64_t offset, SharedBytes bytes,
                   Done done) override;
  void finish_part(CheckpointPart part, std::uint64_t size, const std::string& sha256,
                   Done done) override;
  void adopt_part(CheckpointPart part, std::uint64_t size, const std::string& sha256,
                  Done done) override;
  std::optional<Shared> shared() const override;
  void commit(Committed done) override;
  void abandon() override { writing_.reset(); }

 private:
  using Open = std::shared_ptr<SimCheckpoints::Checkpoint>;
  void after(DiskUse use, std::uint64_t bytes,
             std::function<void(SimCheckpoints::Checkpoint&, Result<void>)> then);

  Runtime& runtime_;
  SimCheckpoints& kept_;
  Open writing_;
};

// A peer's way to that disk, where it sees it.
class SimPartFolder final : public PartFolder {
 public:
  SimPartFolder(Runtime& runtime, SimCheckpoints& kept, bool sees)
      : runtime_(runtime), kept_(kept), sees_(sees) {}
  void run(std::function<Result<void>()> body, std::function<void(Result<void>)> done) override;
  Result<void> prove(const Place& place) override;
  Result<std::unique_ptr<PartWriter>> create(const Place& place) override;

 private:
  Runtime& runtime_;
  SimCheckpoints& kept_;
  bool sees_;
};

class SimCheckpointSource final : public CheckpointSource {
 public:
  // `reading`: how long it takes to read one and to check its bytes.
  SimCheckpointSource(Runtime& runtime, SimCheckpoints& kept, Duration reading)
      : runtime_(runtime), kept_(kept), reading_(reading) {}
  void open_newest(Opened done) override;
  Result<BytesView> tensor(const std::string& name) const override;

 private:
  Runtime& runtime_;
  SimCheckpoints& kept_;
  Duration reading_;
  std::map<std::string, BytesView> tensors_;
};

}  // namespace swarmline
