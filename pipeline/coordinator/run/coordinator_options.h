// What a coordinator is made with, where its checkpoints go and come from, and how it ends.
//   Ownership: sinks and sources outlive the coordinator. Thread: control thread.
//   Errors:    a sink that can't be written costs a checkpoint, not the run.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/result.h"
#include "engine/config/run_config.h"
#include "engine/data/data_manifest.h"
#include "engine/identity/key_hash.h"
#include "engine/model/model_spec.h"

namespace swarmline {

struct LogPoint;

struct RunOutcome {
  int exit_code = 0;
  std::string sentence;
};

// Where checkpoints go, piece by piece; the run folder in life, memory in the simulator.
//   What:   nothing waits for the disk: what is called is carried out later, one after the other,
//           in the order of the calls, and says then how it went, on the control thread. After an
//           error the checkpoint can only be abandoned. What was abandoned may still say so.
//   Errors: kCorrupt (of finish_part: other bytes came than were announced), kIo, kRefused.
struct CheckpointPart {  // a share of a stage's tensors, in a file of its own
  StageId stage;
  std::uint32_t part = 0;
  auto operator<=>(const CheckpointPart&) const = default;
};
inline constexpr std::uint32_t kCheckpointPartsMax = 16;  // of a stage

class CheckpointSink {
 public:
  struct Description {
    std::string name;  // "step-100"
    std::uint64_t version = 0;
    Era era;
    std::vector<StageSpec> stages;
    std::string config_toml;
    bool optimizer_state = false;      // the stage files hold it (saved_state.h)
    std::uint64_t updates = 0;         // commits so far that were not skipped
    std::uint64_t tokens = 0;          // trained on so far
    std::uint64_t attempt = 0;         // no two are the same
    std::vector<std::uint32_t> parts;  // how many each stage has
  };
  struct Shared {  // where peers that see it may write their parts
    std::string path;
    std::string token;  // what a file in it says
  };
  using Done = std::function<void(Result<void>)>;
  using Committed = std::function<void(Result<std::string>)>;  // the path for people
  virtual ~CheckpointSink() = default;
  virtual void begin(const Description& description, Done done) = 0;
  virtual void write_piece(CheckpointPart part, std::uint64_t offset, SharedBytes bytes,
                           Done done) = 0;
  virtual void finish_part(CheckpointPart part, std::uint64_t size, const std::string& sha256,
                           Done done) = 0;
  // A peer has written it into the shared folder, synced it, and says what it is.
  virtual void adopt_part(CheckpointPart part, std::uint64_t size, const std::string& sha256,
                          Done done) = 0;
  virtual std::optional<Shared> shared() const { return std::nullopt; }
  virtual void commit(Committed done) = 0;
  virtual void abandon() = 0;
};

// What a run goes back to: complete checkpoints with the optimizer's state.
class CheckpointSource {
 public:
  struct Saved {
    std::uint64_t version = 0;
    std::uint64_t updates = 0;
    std::string path;  // for people
    Era era = {};      // in which it was saved
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
  std::string config_toml;   // resolved, sent to peers
  std::string run_id;        // a journal that holds a run keeps its own
  std::string run_key;       // of a run that begins: text; empty: seats and links are not proved
  std::string admin_secret;  // of who may steer the run; empty: nobody may, over the network
  std::string page = {};     // the URL of its web page, for the status; empty: none
  // A journal that holds no run begins with the newest checkpoint, where its run left off.
  bool goes_on = false;
  ModelSpec model;
  std::string tokenizer = {};  // of its data; empty: unknown
  // The least memory, in bytes, with which a peer serves each stage; empty: nobody knows, all may.
  std::vector<std::uint64_t> stage_memory = {};
  // Its settings are the run's from now on, those that may change; false: the newest segment's
  // (run/segments.h) stay, and `config` has them.
  bool changes_run = true;
  std::uint64_t eval_sequences =
      0;  // of the held-out split, per evaluation; a multiple of the microbatch
  double unigram_entropy = 0;                        // nats per token, for the summary
  double bigram_entropy = 0;                         // nats per token of the held-out split
  std::function<void(const std::string&)> log_line;  // one JSON object per step, for log.jsonl
  std::function<void(const LogPoint&)> log_point;    // the numbers of a step or an evaluation
  CheckpointSource* checkpoints = nullptr;  // outlives the coordinator; null: there are none
  // What peers' data is compared with before they get a seat; null: it is not.
  std::shared_ptr<const DataManifest> data = nullptr;
  // What a peer shows to others of its seat; empty: links are not authenticated, nothing is shown.
  std::function<std::string(const std::string& run_id, const Seat&, const KeyHash&)> certify = {};
  // The same for a seat that has one, asked at each of its heartbeats; empty: that one is good.
  decltype(certify) certify_anew = {};
  // Whether a key is the run's, of a link that came by it: keys change; empty: it is.
  std::function<bool(const KeyHash&)> is_run_key = {};
};

}  // namespace swarmline
