#include "engine/config/schema.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/limits.h"

namespace swarmline {
namespace {

constexpr std::int64_t kAny = std::numeric_limits<std::int64_t>::max();  // TOML's largest integer
constexpr double kHuge = std::numeric_limits<double>::max();
constexpr double kDaySeconds = 86400;

constexpr Choice kNonFinite[] = {{"skip", static_cast<int>(NonFinite::kSkip)},
                                 {"stop", static_cast<int>(NonFinite::kStop)}};
constexpr Choice kNorms[] = {{"layernorm", static_cast<int>(NormKind::kLayerNorm)},
                             {"rmsnorm", static_cast<int>(NormKind::kRmsNorm)}};
constexpr Choice kActivations[] = {{"gelu", static_cast<int>(ActivationKind::kGelu)},
                                   {"gelu_tanh", static_cast<int>(ActivationKind::kGeluTanh)},
                                   {"swiglu", static_cast<int>(ActivationKind::kSwiGlu)}};
constexpr Choice kPositions[] = {{"learned", static_cast<int>(PositionKind::kLearned)},
                                 {"rotary", static_cast<int>(PositionKind::kRotary)}};
constexpr Choice kBoundaries[] = {{"none", static_cast<int>(BoundaryKind::kNone)},
                                  {"bottleneck", static_cast<int>(BoundaryKind::kBottleneck)},
                                  {"maxout", static_cast<int>(BoundaryKind::kMaxout)}};
constexpr Choice kComputes[] = {{"native", static_cast<int>(ComputeKind::kNative)},
                                {"fp8", static_cast<int>(ComputeKind::kFp8)}};
constexpr Choice kDTypes[] = {{"fp32", static_cast<int>(DType::kF32)},
                              {"fp64", static_cast<int>(DType::kF64)}};
constexpr Choice kDataKinds[] = {{"bytes", static_cast<int>(DataKind::kBytes)},
                                 {"tokens", static_cast<int>(DataKind::kTokens)}};
constexpr Choice kTokenFormats[] = {{"auto", static_cast<int>(TokenFormat::kAuto)},
                                    {"uint16", static_cast<int>(TokenFormat::kUint16)},
                                    {"uint32", static_cast<int>(TokenFormat::kUint32)},
                                    {"llmc", static_cast<int>(TokenFormat::kLlmC)}};
constexpr Choice kOptimizers[] = {{"adamw", static_cast<int>(OptimizerKind::kAdamW)},
                                  {"lamb", static_cast<int>(OptimizerKind::kLamb)}};
constexpr Choice kSchedules[] = {{"constant", static_cast<int>(LearningSchedule::kConstant)},
                                 {"linear", static_cast<int>(LearningSchedule::kLinear)},
                                 {"cosine", static_cast<int>(LearningSchedule::kCosine)}};
constexpr Choice kMoments[] = {{"fp32", static_cast<int>(MomentsKind::kF32)},
                               {"8bit", static_cast<int>(MomentsKind::k8Bit)}};
constexpr Choice kStateMemories[] = {{"device", static_cast<int>(StateMemory::kDevice)},
                                     {"host", static_cast<int>(StateMemory::kHost)}};
constexpr Choice kRecompute[] = {{"true", static_cast<int>(Recompute::kAlways)},
                                 {"false", static_cast<int>(Recompute::kNever)},
                                 {"auto", static_cast<int>(Recompute::kAuto)}};
constexpr Choice kWirings[] = {{"stochastic", static_cast<int>(WiringKind::kStochastic)},
                               {"static", static_cast<int>(WiringKind::kStatic)}};
constexpr Choice kOrders[] = {{"free", static_cast<int>(OrderKind::kFree)},
                              {"gpipe", static_cast<int>(OrderKind::kGPipe)},
                              {"1f1b", static_cast<int>(OrderKind::k1F1B)}};
constexpr Choice kBoundaryCodecs[] = {{"none"}, {"fp16"}, {"bf16"}, {"lin8"}, {"dyn8"}, {"h8"},
                                      {"fp8"},  {"e5m2"}, {"int4"}, {"h4"},   {"auto"}};
constexpr Choice kAveragingCodecs[] = {{"none"}, {"fp16"}, {"bf16"}, {"lin8"}, {"dyn8"}, {"h8"},
                                       {"fp8"},  {"e5m2"}, {"int4"}, {"h4"},   {"topk"}};
constexpr Choice kScales[] = {{"fp32", static_cast<int>(DType::kF32)},
                              {"bf16", static_cast<int>(DType::kBF16)}};
constexpr Choice kTileChecksums[] = {{"auto", static_cast<int>(TileChecksums::kAuto)},
                                     {"always", static_cast<int>(TileChecksums::kAlways)},
                                     {"never", static_cast<int>(TileChecksums::kNever)}};
constexpr Choice kShadows[] = {{"auto"}};
constexpr Choice kLogLevels[] = {{"debug", static_cast<int>(LogLevel::kDebug)},
                                 {"info", static_cast<int>(LogLevel::kInfo)},
                                 {"warn", static_cast<int>(LogLevel::kWarn)},
                                 {"error", static_cast<int>(LogLevel::kError)}};

constexpr KeyKind flag() {
  return {};
}
constexpr KeyKind text() {
  return {};
}
constexpr KeyKind texts() {
  return {.form = Form::kListOrOne};
}
constexpr KeyKind ints(std::int64_t min, std::int64_t max) {
  return {.range = IntRange{min, max}};
}
constexpr KeyKind ints_per_stage(std::int64_t min, std::int64_t max) {
  return {.range = IntRange{min, max}, .form = Form::kNumberPerStage};
}
constexpr KeyKind reals(double min, double max) {
  return {.range = RealRange{min, max}};
}
constexpr KeyKind from_zero() {
  return {.range = RealRange{0, kHuge}};
}
constexpr KeyKind above_zero_to(double max) {
  return {.range = RealRange{.min = 0, .max = max, .min_open = true}};
}
constexpr KeyKind share() {
  return reals(0, 1);
}
constexpr KeyKind share_below_one() {
  return {.range = RealRange{.min = 0, .max = 1, .max_open = true}};
}
constexpr KeyKind one_of(std::span<const Choice> choices) {
  return {.choices = choices};
}
constexpr KeyKind one_of_or_bool(std::span<const Choice> choices) {
  return {.choices = choices, .form = Form::kTextOrBool};
}
constexpr KeyKind one_of_or_ints(std::span<const Choice> choices, std::int64_t min,
                                 std::int64_t max) {
  return {.range = IntRange{min, max}, .choices = choices};
}

// Section, key and field of a row: RunConfig's members are called as their keys.
#define RUN(section, key) \
  #section, #key, [](Roots roots) -> Field { return &roots.run->section.key; }
#define PEER(key, member) "peer", key, [](Roots roots) -> Field { return &roots.peer->member; }

// clang-format off: a key a row, its sentence below it
constexpr auto kRunKeys = std::to_array<KeySpec>({
  {RUN(run, name), text(),
   "Names the run and its folder: letters, digits, '.', '_' and '-'."},
  {RUN(run, seed), ints(0, kAny),
   "Decides initialisation, data order and dropout."},
  {RUN(run, dir), text(),
   "The run folder is `dir/name`."},
  {RUN(run, steps), ints(1, kAny),
   "Optimizer steps of the whole run."},
  {RUN(run, on_nonfinite), one_of(kNonFinite),
   "What to do with a step whose gradient is not finite: leave it out on every stage, or stop "
   "the run."},
  {RUN(run, etcd), texts(),
   "Members (HOST:PORT) of the etcd cluster that holds the journal, so that a standby coordinator "
   "on another machine can take over; none: `journal.sqlite` in the run folder."},
  {RUN(run, etcd_lease_seconds), reals(1, kDaySeconds),
   "With etcd: a coordinator that etcd has not heard of for so long leads no more."},
  {RUN(run, wait_seconds), reals(0, 365 * kDaySeconds),
   "When the last peers of a stage are silent, the run waits for them as long as going back to its "
   "newest checkpoint would take, by what steps were measured to take, and at most so long."},

  {RUN(model, layers), ints(1, 4096),
   "Transformer blocks."},
  {RUN(model, d_model), ints(1, 65536),
   "Width of the residual stream; a multiple of heads."},
  {RUN(model, heads), ints(1, 1024),
   "Attention heads."},
  {RUN(model, kv_heads), ints(0, 1024),
   "Heads of keys and values (grouped-query attention); divides heads. 0: as many as heads."},
  {RUN(model, d_ff), ints(0, 1 << 20),
   "Inner width of the MLP. 0: 4 d_model, or with swiglu 8/3 d_model rounded up to 64."},
  {RUN(model, vocab), ints(0, 1 << 24),
   "Tokens of the vocabulary. 0: what the data needs (257 for bytes)."},
  {RUN(model, norm), one_of(kNorms),
   "Normalisation before attention, before the MLP and before the head."},
  {RUN(model, activation), one_of(kActivations),
   "Of the MLP; gelu_tanh is GPT-2's, swiglu is Llama's."},
  {RUN(model, positions), one_of(kPositions),
   "A learned table, or rotary embeddings of queries and keys."},
  {RUN(model, bias), flag(),
   "Biases of linear layers and of layernorm."},
  {RUN(model, tied_embeddings), flag(),
   "The head uses the token embedding's matrix."},
  {RUN(model, dropout), share_below_one(),
   "Share of activations dropped in training."},
  {RUN(model, norm_eps), above_zero_to(1),
   "Added to the variance in norms."},
  {RUN(model, rope_theta), reals(1, 1e12),
   "Base of the rotary frequencies."},
  {RUN(model, init_std), above_zero_to(10),
   "Standard deviation of initial weights."},
  {RUN(model, share_layers), ints(1, 4096),
   "One block's parameters are used this many times in a row; divides layers."},
  {RUN(model, dtype), one_of(kDTypes),
   "Of parameters, gradients and activations; fp64 is for exactness tests."},
  {RUN(model, boundary), one_of(kBoundaries),
   "Learned compression between stages: a linear layer or a maximum over neighbours narrows what "
   "travels, another linear layer widens it again. Part of the model."},
  {RUN(model, boundary_factor), ints(2, 4),
   "How much narrower than d_model: 2 or 4; divides d_model."},
  {RUN(model, compute), one_of(kComputes),
   "Matrix products of the layers: in the dtype (bf16 on CUDA), or with operands rounded to fp8 "
   "e4m3, a scale per row."},

  {RUN(data, kind), one_of(kDataKinds),
   "Files as bytes (vocabulary 256 + end of document), or shards of ready tokens."},
  {RUN(data, files), texts(),
   "Paths and globs; `**` descends folders. Required.", "[\"texts/**/*.txt\"]"},
  {RUN(data, token_format), one_of(kTokenFormats),
   "Of token shards. auto: by llm.c's header, else uint16."},
  {RUN(data, held_out), reals(0, 0.5),
   "Share of the sequences kept for evaluation and never trained on."},
  {RUN(data, bytes_max), ints(0, kAny),
   "Only the first so many bytes of the data are used. 0: all."},

  {RUN(batch, batch), ints(1, 1 << 24),
   "Sequences per optimizer step."},
  {RUN(batch, microbatch), ints(1, 1 << 20),
   "Sequences that travel together; divides batch."},
  {RUN(batch, sequence), ints(1, 1 << 20),
   "Tokens per sequence."},

  {RUN(optimizer, kind), one_of(kOptimizers),
   "AdamW, or LAMB for very large batches."},
  {RUN(optimizer, lr), above_zero_to(100),
   "Peak learning rate."},
  {RUN(optimizer, beta1), share_below_one(),
   "Decay of the first moment."},
  {RUN(optimizer, beta2), share_below_one(),
   "Decay of the second moment."},
  {RUN(optimizer, eps), above_zero_to(1),
   "Added to the root of the second moment."},
  {RUN(optimizer, weight_decay), reals(0, 100),
   "Decoupled; not on biases and norms."},
  {RUN(optimizer, clip), from_zero(),
   "Largest norm of the whole model's gradient. 0: off."},
  {RUN(optimizer, schedule), one_of(kSchedules),
   "How the learning rate falls after warm-up."},
  {RUN(optimizer, warmup_steps), ints(0, kAny),
   "Steps over which the learning rate rises linearly to lr."},
  {RUN(optimizer, final_lr), share(),
   "Where the schedule ends, as a fraction of lr."},
  {RUN(optimizer, state), one_of(kMoments),
   "How both moments are kept: fp32 is 8 bytes a parameter; 8bit is 2.03, but for embeddings and "
   "tensors of fewer than 4096 parameters, which stay fp32."},
  {RUN(optimizer, state_memory), one_of(kStateMemories),
   "Where a CUDA stage keeps its moments and makes the step: in the device's memory, or in the "
   "host's, which leaves the device's to the model. The numbers are the same."},

  {RUN(pipeline, stages), ints(1, Limits::stages_max),
   "Slices the model is cut into; at most layers / share_layers."},
  {RUN(pipeline, peers), ints_per_stage(1, Limits::stage_peers_max),
   "Peers the run starts with: one number for every stage, or a list of one per stage.", "2"},
  {RUN(pipeline, delay), ints(0, 1),
   "1: the next step computes on the parameters before this step's update, while gradients "
   "are averaged."},
  {RUN(pipeline, recompute), one_of_or_bool(kRecompute),
   "Drop activations after the forward pass and compute them again for the backward pass. "
   "auto: when memory is short."},
  {RUN(pipeline, wiring), one_of(kWirings),
   "Each microbatch finds its own peers by their speed, or fixed routes."},
  {RUN(pipeline, order), one_of(kOrders),
   "Of a peer's microbatches. gpipe: backwards after the step's last forward; 1f1b: at most one "
   "microbatch under way for each stage from here to the last. Both with wiring = \"static\", to "
   "compare with."},
  {RUN(pipeline, in_flight), ints(0, 65536),
   "Microbatches in flight per source. 0: chosen from stages and peers."},
  {RUN(pipeline, layers), ints(1, 4096),
   "Layers of each stage; they add up to the model's. Empty: cut by cost.", "[3, 3, 2]"},

  {RUN(codec, forward), one_of(kBoundaryCodecs),
   "How activations travel. auto: chosen per boundary by what is measured, within error_budget."},
  {RUN(codec, backward), one_of(kBoundaryCodecs),
   "How gradients of activations travel."},
  {RUN(codec, averaging), one_of(kAveragingCodecs),
   "How gradients of parameters travel inside a stage. topk: only the largest, the rest is kept "
   "for the next step."},
  {RUN(codec, block), ints(0, 4096),
   "lin8 and dyn8: elements that share a scale, a power of two from 64. 0: 256."},
  {RUN(codec, scales), one_of(kScales),
   "Type of the scales; bf16 ones are rounded up."},
  {RUN(codec, stochastic), flag(),
   "true: gradients (backward and averaging) are rounded up or down at random, without bias, "
   "where the codec is lin8, h8, int4 or h4."},
  {RUN(codec, topk), above_zero_to(1),
   "Share of the elements that topk keeps."},
  {RUN(codec, error_feedback), flag(),
   "true: what averaging's codec lost is added to the next step's gradient. It dies with its "
   "peer: a run that loses peers then no longer ends with the parameters of the run without "
   "losses. topk always does so."},
  {RUN(codec, error_budget), above_zero_to(1),
   "auto: the largest relative L2 error a codec may make."},
  {RUN(codec, checksums), one_of(kTileChecksums),
   "Whether each 65536 values of a tensor travel with a checksum. auto: where the link is not "
   "sealed, which is checked byte by byte as it is. never: not even there, where nothing but "
   "TCP's 16 bits notices a changed byte."},

  {RUN(wiring, alpha), above_zero_to(1),
   "Weight of the newest observation in a peer's expected service time."},
  {RUN(wiring, in_flight_per_peer), ints(1, Limits::in_flight_per_next_peer_max),
   "Microbatches one sender may have at one peer of the next stage."},
  {RUN(wiring, hop_timeout_seconds), above_zero_to(kDaySeconds),
   "One hop's work; after that the microbatch is sent elsewhere."},
  {RUN(wiring, hedge_share), share(),
   "Of all microbatches at most so many are tried a second time because somebody is late; 0: none. "
   "What is not needed is kept, for a step's microbatches at most."},

  {RUN(balance, shadows), one_of_or_ints(kShadows, 0, Limits::peers_max),
   "Peers of other stages that follow each stage in host memory and take it over when it loses "
   "everybody; auto: where they cost next to nothing."},
  {RUN(balance, moves), flag(),
   "Peers go to another stage, and joiners to the stage, where they help most; false: each stays, "
   "and joiners go where peers are missing."},
  {RUN(balance, period_seconds), above_zero_to(kDaySeconds),
   "How often the planner looks for moves."},

  {RUN(checkpoint, every_steps), ints(0, kAny),
   "A checkpoint after every so many steps. 0: by time alone, at the end, and when drained."},
  {RUN(checkpoint, every_minutes), reals(0, 525600),
   "A checkpoint once the one before is so old, at the end of a step. 0: by steps alone, at the "
   "end, and when drained; both 0: none before the end."},
  {RUN(checkpoint, keep), ints(1, 1 << 20),
   "Newest checkpoints kept."},
  {RUN(checkpoint, optimizer), flag(),
   "Checkpoints hold the optimizer's state, too (two to three times the bytes). false: a run can't "
   "go on from them; it would begin again."},
  {RUN(checkpoint, peers_write), flag(),
   "Peers that see the run's checkpoints folder write their stage there themselves, each a part. "
   "false: all of it goes through the coordinator, as of those who do not see it."},

  {RUN(eval, every_steps), ints(0, kAny),
   "Evaluate the held-out sequences through the swarm this often. 0: only at the end."},
  {RUN(eval, sequences_max), ints(1, kAny),
   "Held-out sequences of one evaluation."},

  {RUN(net, listen), text(),
   "HOST:PORT of the coordinator; port 0: chosen by the system. Beyond this machine its links are "
   "authenticated and sealed, and peers join by the string that it prints (docs/security.md)."},
  {RUN(net, advertise), text(),
   "HOST:PORT that other machines reach the coordinator at. Empty: this machine's own addresses.",
   "\"192.0.2.7:7400\"", true},
  {RUN(net, admit_bytes), ints(0, kAny),
   "Activations a peer admits, in bytes. 0: from its memory."},
  {RUN(net, heartbeat_seconds), above_zero_to(3600),
   "Period of heartbeats between a peer and the coordinator; longer with more peers than would "
   "send 1000 a second."},
  {RUN(net, peer_silence_seconds), reals(0, kDaySeconds),
   "A peer silent for so long counts as lost; at least two heartbeats. 0: about four and a half "
   "heartbeats, more for a peer whose heartbeats come unevenly."},
  {RUN(net, collect_seconds), reals(0, kDaySeconds),
   "A coordinator that is begun again waits at most so long for the peers that it had; then their "
   "seats are over. Where each stage has one and no `standby` is named, a silence "
   "(`peer_silence_seconds`) is enough."},
  {RUN(net, coordinator_patience_seconds), reals(0, 365 * kDaySeconds),
   "A peer whose coordinator is gone goes on with what it holds and tries so long to reach one; "
   "then it ends."},
  {RUN(net, standby), texts(),
   "Addresses of standby coordinators, which peers try when this one is gone."},
  {RUN(net, peers_wait_seconds), reals(0, 365 * kDaySeconds),
   "A run that went back to a checkpoint waits so long until every stage has a peer again, and a "
   "coordinator that hears from nobody for its peers or for newcomers; both wait longer, for "
   "outlast_seconds, for lost peers whose addresses don't refuse. Then the run ends."},
  {RUN(net, build_seconds), above_zero_to(365 * kDaySeconds),
   "A peer that builds its stage or fetches its state, and gets no further for so long, is let "
   "go."},
  {RUN(net, outlast_seconds), reals(0, 365 * kDaySeconds),
   "What can't reach anybody is tried again for so long without any progress: a microbatch that no "
   "peer of the next stage takes, an averaging whose links break. Then the run ends."},

  {RUN(security, insecure), flag(),
   "true: links beyond this machine are neither authenticated nor sealed: for benchmarks on a "
   "network that is one's own."},
  {RUN(security, loopback), flag(),
   "true: links are authenticated and sealed within this machine, too, and whatever `insecure` "
   "says.", "", true},
  {RUN(security, etcd_authority), text(),
   "etcd is spoken to over HTTPS: a PEM file, on the coordinator's machine, with the authority "
   "whose certificates its members show; empty: in clear text."},
  {RUN(security, etcd_certificate), text(),
   "A PEM file with the certificate that is shown to etcd; empty: none is."},
  {RUN(security, etcd_key), text(),
   "The PEM file of its key, which only its owner may read."},

  {RUN(log, level), one_of(kLogLevels),
   "Least serious line that is written."},
});

constexpr auto kPeerKeys = std::to_array<KeySpec>({
  {PEER("device", device), text(),
   "`cpu`, `cuda` or `cuda:N`."},
  {PEER("threads", threads), ints(1, 1024),
   "Threads that compute."},
  {PEER("memory_bytes", memory_bytes), ints(0, kAny),
   "What the peer may use. 0: measured."},
  {PEER("shadow_memory_bytes", shadow_memory_bytes), ints(0, kAny),
   "What the stages that it follows as a shadow may take of the host's memory, and the copy that "
   "it keeps of its own stage's state when it loses its seat. 0: no bound."},
  {PEER("listen", listen), text(),
   "HOST:PORT for other peers; port 0: chosen by the system."},
  {PEER("advertise", advertise), text(),
   "HOST:PORT that others reach this peer at. Empty: what listen bound.", "\"192.0.2.7:4700\""},
  {PEER("data", data), text(),
   "The folder that has the run's data on this machine: the files have the names that they have "
   "below the folder common to all at the coordinator. Empty: the paths are the same.",
   "\"/mnt/ssd/corpus\""},
  {PEER("data_root", data_root), text(),
   "The folder below which the peer reads data, whatever the run's config says; links that lead "
   "out of it do not count. Empty: `data`, else the current folder.", "\"/srv/data\""},
  {PEER("fetch_data", fetch_data), flag(),
   "true: a peer that lacks the run's data, or has other, fetches what it reads of it from peers "
   "that have it."},
  {PEER("fetch_data_folder", fetch_data_folder), text(),
   "Where fetched pieces are kept. Empty: `$XDG_CACHE_HOME/swarmline/data`, else "
   "`$HOME/.cache/swarmline/data`.", "\"/mnt/ssd/pieces\""},
  {PEER("fetch_data_cache_mb", fetch_data_cache_mb), ints(16, 1 << 30),
   "So many MiB of fetched pieces stay on the disk; what was not used for longest goes first."},
  {PEER("join_patience_seconds", join_patience_seconds), reals(0, 365 * kDaySeconds),
   "A newcomer tries so long while no coordinator answers; then it ends."},
  {PEER("zone", zone), text(),
   "Where the machine is; machines of one zone tend to vanish together."},
  {PEER("price", price), from_zero(),
   "Per hour, in any currency."},
  {PEER("bandwidth", bandwidth), from_zero(),
   "Bits per second. 0: measured."},
  {PEER("insecure", insecure), flag(),
   "true: joins a run beyond this machine by HOST:PORT, although its links are neither "
   "authenticated nor sealed."},
  {PEER("key", key), text(),
   "File of its own key, by which the run knows it again; made if need be. Empty: one that is made "
   "at each start.", "\"/var/lib/swarmline/peer.key\""},
  {PEER("emulate.forward_ms", emulate_forward_ms), reals(0, 3.6e6),
   "Holds the device this long for a forward pass, whatever it really takes. 0: off."},
  {PEER("emulate.backward_ms", emulate_backward_ms), reals(0, 3.6e6),
   "The same for a backward pass."},
  {PEER("emulate.jitter", emulate_jitter), share(),
   "Each emulated time is multiplied by a uniform draw from [1 - jitter, 1 + jitter]."},
});
// clang-format on

#undef RUN
#undef PEER

constexpr RetiredKey kRetiredKeys[] = {
    {"codec", "state", "\"none\"", "A joiner gets its state as it is, bit for bit."},
    {"net", "connect_timeout_seconds", {}, "Peers try a connection for ten seconds."},
};

}  // namespace

std::span<const RetiredKey> retired_keys() {
  return kRetiredKeys;
}

std::span<const KeySpec> run_keys() {
  return kRunKeys;
}
std::span<const KeySpec> peer_keys() {
  return kPeerKeys;
}

const RetiredKey* find_retired(std::string_view section, std::string_view key) {
  for (const RetiredKey& retired : kRetiredKeys)
    if (retired.section == section && retired.key == key) return &retired;
  return nullptr;
}

std::vector<std::string_view> section_names(std::span<const KeySpec> keys) {
  std::vector<std::string_view> names;
  for (const KeySpec& spec : keys)
    if (std::ranges::find(names, spec.section) == names.end()) names.push_back(spec.section);
  return names;
}

std::vector<std::string_view> key_names(std::span<const KeySpec> keys, std::string_view section) {
  std::vector<std::string_view> names;
  for (const KeySpec& spec : keys)
    if (spec.section == section) names.push_back(spec.key);
  return names;
}

const KeySpec* find_key(std::span<const KeySpec> keys, std::string_view section,
                        std::string_view key) {
  for (const KeySpec& spec : keys)
    if (spec.section == section && spec.key == key) return &spec;
  return nullptr;
}

}  // namespace swarmline
