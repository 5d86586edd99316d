// What a coordinator is made with, where its checkpoints go and come from, and how it ends.
//   Ownership: sinks and sources outlive the coordinator. Thread: control thread.
//   Errors:    a sink that can't be written ends the run.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/result.h"
#include "engine/config/run_config.h"
#include "engine/model/model_spec.h"

namespace swarmline {

struct RunOutcome {
  int exit_code = 0;
  std::string sentence;
};

// Where checkpoints go, piece by piece; the run folder in life, memory in the simulator.
class CheckpointSink {
 public:
  struct Description {
    std::string name;  // "step-100"
    std::uint64_t version = 0;
    std::vector<StageSpec> stages;
    std::string config_toml;
    bool optimizer_state = false;  // the stage files hold it (saved_state.h)
    std::uint64_t updates = 0;     // commits so far that were not skipped
  };
  virtual ~CheckpointSink() = default;
  virtual Result<void> begin(const Description& description) = 0;
  virtual Result<void> write_piece(StageId stage, std::uint64_t offset, BytesView bytes) = 0;
  virtual Result<void> finish_stage(StageId stage, std::uint64_t size,
                                    const std::string& sha256) = 0;
  virtual Result<std::string> commit() = 0;  // the path for people
  virtual void abandon() = 0;
};

// What a run goes back to: complete checkpoints with the optimizer's state.
class CheckpointSource {
 public:
  struct Saved {
    std::uint64_t version = 0;
    std::uint64_t updates = 0;
    std::string path;  // for people
  };
  using Opened = std::function<void(Result<std::optional<Saved>>)>;
  virtual ~CheckpointSource() = default;
  // The newest one whose bytes are what was written; the others are passed over, with a warning.
  // Empty: there is none. Every byte is read, which may take minutes, off the control thread;
  // `done` comes there, later. Its tensors can be read until the next call.
  virtual void open_newest(Opened done) = 0;
  virtual Result<BytesView> tensor(const std::string& name) const = 0;
};

struct CoordinatorOptions {
  RunConfig config;
  std::string config_toml;  // resolved, sent to peers
  std::string run_id;       // a journal that holds a run keeps its own
  ModelSpec model;
  std::uint64_t eval_sequences =
      0;  // of the held-out split, per evaluation; a multiple of the microbatch
  double unigram_entropy = 0;                        // nats per token, for the summary
  double bigram_entropy = 0;                         // nats per token of the held-out split
  std::function<void(const std::string&)> log_line;  // one JSON object per step, for log.jsonl
  CheckpointSource* checkpoints = nullptr;  // outlives the coordinator; null: there are none
};

}  // namespace swarmline
