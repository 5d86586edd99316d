// The whole of a run's TOML file as checked values, every default filled in. `config_version = 1`.
//   Ownership: plain values. Thread: immutable after loading.
//   Ranges:    checked by load_run_config (load.h), named in docs/config.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/log_level.h"

namespace swarmline {

enum class NonFinite : std::uint8_t { kStop, kSkip };

struct RunSection {
  std::string name = "run";
  std::uint64_t seed = 1;
  std::string dir = "runs";  // the run folder is dir/name
  std::uint64_t steps = 100;
  NonFinite on_nonfinite = NonFinite::kStop;  // "skip" | "stop"
  std::vector<std::string> etcd;              // HOST:PORT; none: the journal is in the run folder
  double etcd_lease_seconds = 5;              // a coordinator silent for so long leads no more
  double wait_seconds = 600;  // for a stage's last peers, where going back costs more
  // Parameters of version 0: "hf:DIR" | "checkpoint:PATH"; empty: drawn from the seed.
  std::string init;
  bool operator==(const RunSection&) const = default;
};

enum class NormKind : std::uint8_t { kLayerNorm, kRmsNorm };
enum class ActivationKind : std::uint8_t { kGelu, kGeluTanh, kSwiGlu };
enum class PositionKind : std::uint8_t { kLearned, kRotary };
enum class BoundaryKind : std::uint8_t { kNone, kBottleneck, kMaxout };
enum class ComputeKind : std::uint8_t { kNative, kFp8 };
enum class Precision : std::uint8_t { kAuto, kF32, kBF16 };
enum class StreamKind : std::uint8_t { kDType, kBF16 };

struct ModelSection {
  std::uint32_t layers = 8;
  std::uint32_t d_model = 128;
  std::uint32_t heads = 4;
  std::uint32_t kv_heads = 0;  // 0: as many as heads
  std::uint32_t head_dim = 0;  // 0: d_model / heads
  std::uint32_t d_ff = 0;      // 0: 4 d_model, or 8/3 d_model rounded up to 64 with swiglu
  std::uint32_t vocab = 0;     // 0: what the data needs (257 for bytes)
  NormKind norm = NormKind::kLayerNorm;               // "layernorm" | "rmsnorm"
  ActivationKind activation = ActivationKind::kGelu;  // "gelu" | "gelu_tanh" | "swiglu"
  PositionKind positions = PositionKind::kLearned;    // "learned" | "rotary"
  bool qk_norm = false;                               // RMSNorm of each head's queries and keys
  std::uint32_t window = 0;                           // tokens that a sliding window spans; 0: none
  std::string window_pattern = "S";  // by layer, repeated: S with the window, L without
  bool bias = true;                  // biases of linears (and of LayerNorm)
  bool tied_embeddings = true;
  double dropout = 0;
  double norm_eps = 1e-5;
  double rope_theta = 10000;
  double init_std = 0.02;
  std::uint32_t share_layers = 1;  // k: one block's parameters used k times in a row
  DType dtype = DType::kF32;       // "fp32" | "fp64" (fp64 is for exactness tests)
  // Learned compression where the model is cut into stages: "none" | "bottleneck" | "maxout".
  BoundaryKind boundary = BoundaryKind::kNone;
  std::uint32_t boundary_factor = 2;           // 2 | 4: d_model over the width that travels
  ComputeKind compute = ComputeKind::kNative;  // "native" | "fp8": matrix products of the layers
  // Of matrix products and attention: "auto" (bf16 on CUDA, else the dtype) | "fp32" | "bf16".
  Precision precision = Precision::kAuto;
  // Of the residual stream, and so of what travels between stages: "dtype" | "bf16".
  StreamKind stream = StreamKind::kDType;

  std::uint32_t head_width() const { return head_dim > 0 ? head_dim : d_model / heads; }
  DType stream_dtype() const { return stream == StreamKind::kBF16 ? DType::kBF16 : dtype; }
  bool has_window(std::uint32_t layer) const {
    return window > 0 && window_pattern[layer % window_pattern.size()] == 'S';
  }
  bool operator==(const ModelSection&) const = default;
};

enum class DataKind : std::uint8_t { kBytes, kTokens };
enum class TokenFormat : std::uint8_t { kAuto, kUint16, kUint32, kLlmC };

struct DataSection {
  DataKind kind = DataKind::kBytes;  // "bytes" | "tokens"
  std::vector<std::string> files;    // paths and globs, and folders that data prepare made
  std::vector<double> weights;       // one per entry of files; empty: by their sizes
  // tokens: "uint16" | "uint32" | "llmc" | "auto" (by header, else by extension .bin = uint16)
  TokenFormat token_format = TokenFormat::kAuto;
  double held_out = 0.02;  // share of sequences kept for evaluation; none with `validation`
  std::vector<std::string> validation;  // as files; evaluations read these
  std::uint64_t bytes_max = 0;          // 0: all; otherwise only the first so many bytes are used
  // Step `from_step` begins at this position of the training data's order: written by a run that
  // has been changed (pipeline/coordinator/run/segments.h), for its peers.
  std::uint64_t from_step = 0;
  std::uint64_t from_sequence = 0;
  bool mask_documents = false;  // tokens attend within their own document only
  bool holds_out() const { return held_out > 0 || !validation.empty(); }
  bool operator==(const DataSection&) const = default;
};

struct BatchSection {
  std::uint32_t batch = 32;      // sequences per step
  std::uint32_t microbatch = 4;  // sequences per microbatch; divides batch
  std::uint32_t sequence = 128;  // tokens
  bool operator==(const BatchSection&) const = default;
};

enum class OptimizerKind : std::uint8_t { kAdamW, kLamb, kMuon };
enum class LearningSchedule : std::uint8_t { kConstant, kLinear, kCosine, kWsd };
enum class MomentsKind : std::uint8_t { kF32, k8Bit };
enum class StateMemory : std::uint8_t { kDevice, kHost };

struct OptimizerSection {
  OptimizerKind kind = OptimizerKind::kAdamW;  // "adamw" | "lamb" | "muon"
  double lr = 3e-4;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
  double clip = 1.0;             // global norm; 0: off
  double muon_momentum = 0.95;   // of the matrices that Muon steps
  std::uint32_t muon_steps = 5;  // of its Newton-Schulz iteration
  // "constant" | "linear" | "cosine" | "wsd" (warm-up, stable, decay)
  LearningSchedule schedule = LearningSchedule::kCosine;
  std::uint64_t warmup_steps = 0;
  std::uint64_t lr_decay_steps = 0;                 // where the schedule ends; 0: with the run
  double decay_ratio = 0.2;                         // wsd: share of the schedule that decays
  double final_lr = 0.1;                            // fraction of lr at the end of the schedule
  MomentsKind state = MomentsKind::kF32;            // of the moments: "fp32" | "8bit"
  StateMemory state_memory = StateMemory::kDevice;  // of a CUDA stage: "device" | "host"
  bool operator==(const OptimizerSection&) const = default;
};

enum class Recompute : std::uint8_t { kAuto, kAlways, kNever };
enum class TileChecksums : std::uint8_t { kAuto, kAlways, kNever };
enum class NoticeSource : std::uint8_t { kAuto, kAws, kGcp, kAzure, kCommand, kNone };
enum class WiringKind : std::uint8_t { kStochastic, kStatic };
enum class OrderKind : std::uint8_t { kFree, kGPipe, k1F1B };

struct PipelineSection {
  std::uint32_t stages = 1;
  // One entry per stage once loaded; the file may say one number for all.
  std::vector<std::uint32_t> peers = {1};
  std::uint32_t delay = 0;                      // 0 | 1
  Recompute recompute = Recompute::kAuto;       // "true" | "false" | "auto"
  WiringKind wiring = WiringKind::kStochastic;  // "stochastic" | "static"
  OrderKind order = OrderKind::kFree;  // "free" | "gpipe" | "1f1b": of a peer's microbatches
  // Microbatches in flight per source; 0: chosen from stages and peers.
  std::uint32_t in_flight = 0;
  std::vector<std::uint32_t> layers;  // explicit cut: layers per stage; empty: by cost
  bool operator==(const PipelineSection&) const = default;
};

// Codecs by name: what a name means is compression/codec.h's to say, by parse_codec.
struct CodecSection {
  // none | fp16 | bf16 | lin8 | dyn8 | h8 | fp8 | e5m2 | int4 | h4 | auto
  std::string forward = "h8";
  std::string backward = "h8";
  std::string averaging = "none";  // the same but auto, and topk
  std::uint32_t block = 0;         // lin8, dyn8: elements per scale, 64..4096; 0: 256
  DType scales = DType::kF32;      // "fp32" | "bf16"
  bool stochastic = false;         // gradients: backward and averaging
  double topk = 0.01;              // share of the elements that topk keeps
  bool error_feedback = false;     // averaging; topk always has it
  double error_budget = 0.01;      // auto: relative L2
  TileChecksums checksums = TileChecksums::kAuto;  // "auto" | "always" | "never"
  bool operator==(const CodecSection&) const = default;
};

struct WiringSection {
  double alpha = 0.1;  // weight of the newest observation
  std::uint32_t in_flight_per_peer = 8;
  double hop_timeout_seconds = 60;  // one hop's work; then the microbatch is sent elsewhere
  double hedge_share = 0.05;  // of all microbatches: tried a second time before anybody failed
  bool stay_in_zone = true;   // where peers say zones and a byte costs something
  bool operator==(const WiringSection&) const = default;
};

// How many peers follow each stage: a number, or as many as cost next to nothing.
struct ShadowsPerStage {
  std::uint32_t count = 0;  // 0 with automatic
  bool automatic = false;

  bool none() const { return !automatic && count == 0; }
  bool operator==(const ShadowsPerStage&) const = default;
};
inline constexpr ShadowsPerStage kShadowsAuto{.automatic = true};

struct BalanceSection {
  ShadowsPerStage shadows;  // "auto" | a number per stage
  bool moves = true;
  double period_seconds = 60;
  bool operator==(const BalanceSection&) const = default;
};

struct CheckpointSection {
  std::uint64_t every_steps = 0;  // 0: not by steps
  double every_minutes = 10;      // 0: not by time
  std::uint32_t keep = 3;
  std::uint64_t keep_every = 0;    // those of multiples of so many steps stay; 0: none for that
  std::uint32_t keep_best = 0;     // so many with the least held-out loss stay
  bool optimizer = true;           // its state, too: only then can a run go on from it
  bool peers_write = true;         // those who see the run's checkpoints
  std::string store;               // "s3://BUCKET/PATH" | "gs://BUCKET/PATH"; empty: none
  std::string python = "python3";  // has pyarrow, which reaches the store
  bool operator==(const CheckpointSection&) const = default;
};

struct EvalSection {
  std::uint64_t every_steps = 0;  // 0: only at the end; held-out split through the swarm
  std::uint64_t sequences_max = 64;
  bool operator==(const EvalSection&) const = default;
};

enum class Transport : std::uint8_t { kAuto, kTcp, kShm, kUcx, kStreams };
enum class Islands : std::uint8_t { kNone, kHost };
enum class FabricChoice : std::uint8_t { kNone, kAuto };

struct NetSection {
  std::string listen = "127.0.0.1:0";  // the coordinator's address
  std::string advertise;               // where others reach it; empty: at this machine's addresses
  std::string page = "127.0.0.1:0";    // where the coordinator serves the run's page; "none"
  std::uint64_t admit_bytes = 0;       // activations a peer admits; 0: from its memory
  double heartbeat_seconds = 0.5;
  double peer_silence_seconds = 0;  // then a peer counts as lost; 0: from its heartbeats
  double collect_seconds = 5;       // a coordinator begun again waits so long for its peers
  double coordinator_patience_seconds = 300;  // peers wait so long for a coordinator that is gone
  std::vector<std::string> standby;           // addresses of coordinators that may take over
  double peers_wait_seconds = 60;         // a run that went back waits so long for missing peers
  double build_seconds = 600;             // a peer that gets no further with its stage is let go
  double outlast_seconds = 1800;          // who can't be reached is tried for so long
  Transport transport = Transport::kTcp;  // of payloads
  std::uint32_t streams = 4;              // connections of Transport::kStreams
  Islands islands = Islands::kNone;       // who sums first, where a stage averages
  FabricChoice fabric = FabricChoice::kAuto;  // how an island's sums move
  bool operator==(const NetSection&) const = default;
};

struct SecuritySection {
  bool insecure = false;  // true: links beyond this machine are neither authenticated nor sealed
  bool loopback = false;  // true: all are, those within this machine, too
  // PEM files on the coordinator's machine; no authority: etcd is spoken to in clear text.
  std::string etcd_authority;
  std::string etcd_certificate;
  std::string etcd_key;
  // Ranges of addresses where nobody but the run's own machines sees or sends anything.
  std::vector<std::string> trusted_networks;
  bool operator==(const SecuritySection&) const = default;
};

struct LogSection {
  LogLevel level = LogLevel::kInfo;  // debug | info | warn | error
  bool tensorboard = false;          // event files in the run folder, too
  std::string command;               // gets each line of log.jsonl; empty: none
  bool operator==(const LogSection&) const = default;
};

// What a run's machines cost, and how much it may: docs/money.md.
struct MoneySection {
  std::string currency = "USD";
  double egress_price = 0;       // of a GB (10^9 bytes) that a peer sends, where it says no other
  double coordinator_price = 0;  // per hour
  double budget = 0;             // the run ends with a checkpoint at this cost; 0: it has no bound
  double budget_hours = 0;       // ... after so long; 0: it has no bound
  bool operator==(const MoneySection&) const = default;
};

struct RunConfig {
  std::uint32_t config_version = 1;
  RunSection run;
  ModelSection model;
  DataSection data;
  BatchSection batch;
  OptimizerSection optimizer;
  PipelineSection pipeline;
  CodecSection codec;
  WiringSection wiring;
  BalanceSection balance;
  CheckpointSection checkpoint;
  EvalSection eval;
  NetSection net;
  SecuritySection security;
  LogSection log;
  MoneySection money;

  std::uint32_t microbatches_per_step() const { return batch.batch / batch.microbatch; }
  std::uint64_t tokens_per_step() const { return std::uint64_t{batch.batch} * batch.sequence; }
  std::string run_folder() const { return run.dir + "/" + run.name; }
  bool operator==(const RunConfig&) const = default;
};

// Machine-local keys: `[peer]` of a peer.toml, or flags of `swarmline peer`.
struct PeerConfig {
  std::string device = "cpu";             // "cpu" | "cuda" | "cuda:N"
  std::uint32_t threads = 1;              // compute threads
  std::uint64_t memory_bytes = 0;         // 0: measured
  std::uint64_t shadow_memory_bytes = 0;  // for stages it follows or has lost; 0: no bound
  std::string listen = "127.0.0.1:0";
  std::string advertise;          // empty: what listen bound
  std::string data;               // folder of the run's data here; empty: as the coordinator's
  std::string data_root;          // empty: `data`, else the current folder
  bool fetch_data = false;        // what it lacks of it, from others
  std::string fetch_data_folder;  // kept there; empty: in the user's cache
  std::uint64_t fetch_data_cache_mb = 4096;  // so much stays there, MiB
  double join_patience_seconds = 30;         // it tries so long while no coordinator answers
  std::string zone;
  double price = 0;         // per hour
  double egress_price = 0;  // of a GB that it sends; 0: as the run's [money] says
  double bandwidth = 0;     // bits per second; 0: not said
  bool insecure = false;    // true: joins beyond this machine without authenticated links
  std::string key;          // file of its own key; empty: one that is made at each start
  NoticeSource notices = NoticeSource::kAuto;
  std::string notice_command;     // of "command": it waits for the notice (node/notices)
  std::string notice_url;         // http://HOST[:PORT] of the metadata server; empty: the cloud's
  double emulate_forward_ms = 0;  // emulate = {forward_ms, backward_ms, jitter}
  double emulate_backward_ms = 0;
  double emulate_jitter = 0;
  bool operator==(const PeerConfig&) const = default;
};

}  // namespace swarmline
