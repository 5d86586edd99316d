#include "engine/config/schema.h"

#include <array>

#include "base/limits.h"

namespace swarmline {
namespace {

using namespace key_kinds;

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
constexpr Choice kPrecisions[] = {{"auto", static_cast<int>(Precision::kAuto)},
                                  {"fp32", static_cast<int>(Precision::kF32)},
                                  {"bf16", static_cast<int>(Precision::kBF16)}};
constexpr Choice kStreams[] = {{"dtype", static_cast<int>(StreamKind::kDType)},
                               {"bf16", static_cast<int>(StreamKind::kBF16)}};
constexpr Choice kDTypes[] = {{"fp32", static_cast<int>(DType::kF32)},
                              {"fp64", static_cast<int>(DType::kF64)}};
constexpr Choice kDataKinds[] = {{"bytes", static_cast<int>(DataKind::kBytes)},
                                 {"tokens", static_cast<int>(DataKind::kTokens)}};
constexpr Choice kTokenFormats[] = {{"auto", static_cast<int>(TokenFormat::kAuto)},
                                    {"uint16", static_cast<int>(TokenFormat::kUint16)},
                                    {"uint32", static_cast<int>(TokenFormat::kUint32)},
                                    {"llmc", static_cast<int>(TokenFormat::kLlmC)}};
constexpr Choice kOptimizers[] = {{"adamw", static_cast<int>(OptimizerKind::kAdamW)},
                                  {"lamb", static_cast<int>(OptimizerKind::kLamb)},
                                  {"muon", static_cast<int>(OptimizerKind::kMuon)}};
constexpr Choice kSchedules[] = {{"constant", static_cast<int>(LearningSchedule::kConstant)},
                                 {"linear", static_cast<int>(LearningSchedule::kLinear)},
                                 {"cosine", static_cast<int>(LearningSchedule::kCosine)},
                                 {"wsd", static_cast<int>(LearningSchedule::kWsd)}};
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
constexpr Choice kTransports[] = {{"auto", static_cast<int>(Transport::kAuto)},
                                  {"tcp", static_cast<int>(Transport::kTcp)},
                                  {"shm", static_cast<int>(Transport::kShm)},
                                  {"streams", static_cast<int>(Transport::kStreams)},
                                  {"ucx", static_cast<int>(Transport::kUcx)}};
constexpr Choice kIslands[] = {{"none", static_cast<int>(Islands::kNone)},
                               {"host", static_cast<int>(Islands::kHost)}};
constexpr Choice kFabrics[] = {{"auto", static_cast<int>(FabricChoice::kAuto)},
                               {"none", static_cast<int>(FabricChoice::kNone)}};
constexpr Choice kLogLevels[] = {{"debug", static_cast<int>(LogLevel::kDebug)},
                                 {"info", static_cast<int>(LogLevel::kInfo)},
                                 {"warn", static_cast<int>(LogLevel::kWarn)},
                                 {"error", static_cast<int>(LogLevel::kError)}};

// Section, key and field of a row: RunConfig's members are called as their keys.
#define RUN(section, key) \
  #section, #key, [](Roots roots) -> Field { return &roots.run->section.key; }

// clang-format off: a key a row, its sentence below it
constexpr auto kRunKeys = std::to_array<KeySpec>({
  {RUN(run, name), text(),
   "Name of the run and of its folder; letters, digits, '.', '_' and '-' are allowed."},
  {RUN(run, seed), ints(0, kAny),
   "Random seed of the initial weights, the data order and dropout."},
  {RUN(run, dir), text(),
   "Parent of the run folder, which is `dir/name`."},
  {RUN(run, steps), ints(1, kAny),
   "Number of optimizer steps in the whole run."},
  {RUN(run, on_nonfinite), one_of(kNonFinite),
   "What to do when a step's gradient is not finite: skip the update on every stage, or stop the "
   "run."},
  {RUN(run, etcd), texts(),
   "Members (HOST:PORT) of the etcd cluster that holds the journal, so that a standby coordinator "
   "on another machine can take over. Empty: the journal is `journal.sqlite` in the run folder."},
  {RUN(run, etcd_lease_seconds), reals(1, kDaySeconds),
   "Lease time in etcd: a coordinator that etcd has not heard from for this long no longer leads "
   "the run."},
  {RUN(run, wait_seconds), reals(0, 365 * kDaySeconds),
   "Longest time that the run waits for the last peers of a stage when they fall silent. It waits "
   "only as long as going back to the newest checkpoint would cost, judged by measured step "
   "times."},
  {RUN(run, init), text(),
   "Where the initial parameters come from: `hf:DIR`, a folder that Hugging Face transformers "
   "opens, or `checkpoint:PATH`, a run folder or one of its checkpoints, of which only the "
   "parameters are taken. Empty: drawn from the seed.", "\"hf:models/gpt2\"", true},

  {RUN(model, layers), ints(1, 4096),
   "Number of Transformer blocks."},
  {RUN(model, d_model), ints(1, 65536),
   "Width of the residual stream; must be a multiple of heads unless head_dim is set."},
  {RUN(model, heads), ints(1, 1024),
   "Number of attention heads."},
  {RUN(model, kv_heads), ints(0, 1024),
   "Number of key and value heads (grouped-query attention); must divide heads. 0: as many as "
   "heads."},
  {RUN(model, head_dim), ints(0, 65536),
   "Width of an attention head. 0: d_model / heads."},
  {RUN(model, d_ff), ints(0, 1 << 20),
   "Inner width of the MLP. 0: 4 d_model, or with swiglu 8/3 d_model rounded up to a multiple of "
   "64."},
  {RUN(model, vocab), ints(0, 1 << 24),
   "Vocabulary size in tokens. 0: what the data needs (257 for bytes)."},
  {RUN(model, norm), one_of(kNorms),
   "Type of normalisation before attention, before the MLP and before the head."},
  {RUN(model, activation), one_of(kActivations),
   "Activation function of the MLP; gelu_tanh is GPT-2's, swiglu is Llama's."},
  {RUN(model, positions), one_of(kPositions),
   "How positions are encoded: a learned table, or rotary embeddings of queries and keys."},
  {RUN(model, qk_norm), flag(),
   "Whether each head's queries and keys go through an RMS norm before rotary embeddings, as in "
   "Qwen3."},
  {RUN(model, window), ints(0, 1 << 24),
   "Size of the sliding window in tokens: a token attends to itself and to the window - 1 tokens "
   "before it. 0: to all tokens before it."},
  {RUN(model, window_pattern), text(),
   "Layers that have the window, one letter per layer, repeated over the layers: S has it, L "
   "attends to all tokens.", "\"SSSL\""},
  {RUN(model, bias), flag(),
   "Whether linear layers and layernorm have biases."},
  {RUN(model, tied_embeddings), flag(),
   "Whether the head reuses the token embedding's matrix."},
  {RUN(model, dropout), share_below_one(),
   "Fraction of activations dropped during training."},
  {RUN(model, norm_eps), above_zero_to(1),
   "Value added to the variance in norms."},
  {RUN(model, rope_theta), reals(1, 1e12),
   "Base of the rotary frequencies."},
  {RUN(model, init_std), above_zero_to(10),
   "Standard deviation of the initial weights."},
  {RUN(model, share_layers), ints(1, 4096),
   "How many layers in a row share one block's parameters; must divide layers."},
  {RUN(model, dtype), one_of(kDTypes),
   "Type of parameters, gradients, optimizer state and, unless `stream` says otherwise, the "
   "residual stream; fp64 is meant for exactness tests."},
  {RUN(model, boundary), one_of(kBoundaries),
   "Learned compression between stages, as part of the model: a linear layer or a maximum over "
   "neighbours narrows what is sent, and another linear layer widens it again."},
  {RUN(model, boundary_factor), ints(2, 4),
   "How many times narrower than d_model the boundary is, 2 or 4; must divide d_model."},
  {RUN(model, compute), one_of(kComputes),
   "Operands of the layers' matrix products: as `precision` says, or fp8 with one scale per row: "
   "e4m3, output gradients e5m2."},
  {RUN(model, precision), one_of(kPrecisions),
   "Type that matrix products and attention are computed in. auto: bf16 on CUDA, else the dtype. "
   "Norms, the loss and everything that `dtype` names stay in the dtype."},
  {RUN(model, stream), one_of(kStreams),
   "Type of the residual stream between blocks, and so of activations and their gradients between "
   "stages: the dtype, or bf16, which is half of fp32 in memory and with codec \"none\"."},

  {RUN(data, kind), one_of(kDataKinds),
   "Type of the files: raw bytes (vocabulary 256 + end of document), or tokens: shards of them, "
   "and folders made by `swarmline data prepare`."},
  {RUN(data, files), texts(),
   "Paths and globs of the training data; `**` matches folders at any depth. With kind = "
   "\"tokens\", prepared folders too. Required.",
   "[\"texts/**/*.txt\"]"},
  {RUN(data, weights), weights(),
   "Mixes the entries of files: one weight per entry, in any unit, is its share of the trained "
   "sequences; an entry is repeated as often as its share needs. Empty: every sequence is used "
   "once before any is repeated.", "[0.7, 0.3]", true},
  {RUN(data, token_format), one_of(kTokenFormats),
   "Format of token shards. auto: llm.c's if the file has its header; else uint32 for names that "
   "end in `.u32.bin`, and uint16 for others."},
  {RUN(data, held_out), reals(0, 0.5),
   "Fraction of the sequences that is kept for evaluation and never trained on; with weights, of "
   "each entry of files. Unused if `validation` names files."},
  {RUN(data, validation), texts(),
   "Paths and globs of the data for evaluation, of the same kind as files, instead of held-out "
   "sequences. What they match is not trained on.", "[\"data/validation\"]", true},
  {RUN(data, bytes_max), bytes(),
   "Use only this many bytes from the beginning of the data. 0: all.", "\"1G\""},
  {RUN(data, from_step), ints(0, kAny),
   "Written by a run that was changed (docs/changing.md), for its peers; not for config files: the "
   "step that begins at `from_sequence`.", "", true},
  {RUN(data, from_sequence), ints(0, kAny),
   "Written by such a run, too: how far into the order of the training data that step begins, in "
   "sequences.", "", true},
  {RUN(data, mask_documents), flag(),
   "Whether a token attends to tokens of its own document only, where a sequence holds several "
   "(docs/prepare.md). Needs bytes, or folders made by `swarmline data prepare`.", "", true},

  {RUN(batch, batch), ints(1, 1 << 24),
   "Number of sequences per optimizer step."},
  {RUN(batch, microbatch), ints(1, 1 << 20),
   "Number of sequences that travel together; must divide batch."},
  {RUN(batch, sequence), ints(1, 1 << 20),
   "Number of tokens per sequence."},

  {RUN(optimizer, kind), one_of(kOptimizers),
   "Optimizer: AdamW, LAMB for very large batches, or Muon, which steps the matrices of the layers "
   "with an orthogonalized momentum and everything else as AdamW does."},
  {RUN(optimizer, lr), above_zero_to(100),
   "Peak learning rate."},
  {RUN(optimizer, beta1), share_below_one(),
   "Decay rate of the first moment."},
  {RUN(optimizer, beta2), share_below_one(),
   "Decay rate of the second moment."},
  {RUN(optimizer, eps), above_zero_to(1),
   "Value added to the square root of the second moment."},
  {RUN(optimizer, weight_decay), reals(0, 100),
   "Decoupled weight decay; biases and norms are exempt."},
  {RUN(optimizer, clip), from_zero(),
   "Maximum norm of the whole model's gradient. 0: no clipping."},
  {RUN(optimizer, muon_momentum), share_below_one(),
   "Muon: decay rate of the momentum of the matrices that it steps."},
  {RUN(optimizer, muon_steps), ints(1, 20),
   "Muon: number of Newton-Schulz iterations that orthogonalize a momentum."},
  {RUN(optimizer, schedule), one_of(kSchedules),
   "How the learning rate falls after warm-up. wsd: it stays at lr and falls linearly at the end."},
  {RUN(optimizer, warmup_steps), ints(0, kAny),
   "Number of steps over which the learning rate rises linearly to lr."},
  {RUN(optimizer, lr_decay_steps), ints(0, kAny),
   "Step at which the schedule ends; the learning rate stays constant after it. 0: run.steps."},
  {RUN(optimizer, decay_ratio), above_zero_to(1),
   "Fraction of the schedule's steps over which wsd lowers the learning rate."},
  {RUN(optimizer, final_lr), share(),
   "Learning rate at the end of the schedule, as a fraction of lr."},
  {RUN(optimizer, state), one_of(kMoments),
   "Precision of both moments: fp32 takes 8 bytes a parameter; 8bit takes 2.03, except that "
   "embeddings and tensors of fewer than 4096 parameters stay fp32."},
  {RUN(optimizer, state_memory), one_of(kStateMemories),
   "Where a CUDA stage keeps its moments and runs the optimizer: in device memory, or in host "
   "memory, which leaves device memory to the model. The numbers are the same. "
   "Muon's are always in host memory."},

  {RUN(pipeline, stages), ints(1, Limits::stages_max),
   "Number of slices the model is cut into; at most layers / share_layers."},
  {RUN(pipeline, peers), ints_per_stage(1, Limits::stage_peers_max),
   "Number of peers the run starts with: one number for every stage, or a list with one per "
   "stage.", "2"},
  {RUN(pipeline, delay), ints(0, 1),
   "1: the next step computes on the parameters from before this step's update while gradients "
   "are averaged. 0: it waits for the update."},
  {RUN(pipeline, recompute), one_of_or_bool(kRecompute),
   "Whether to drop activations after the forward pass and compute them again for the backward "
   "pass. auto: when memory is short."},
  {RUN(pipeline, wiring), one_of(kWirings),
   "How microbatches find their peers: each picks peers by their speed, or all take fixed routes."},
  {RUN(pipeline, order), one_of(kOrders),
   "Order of a peer's microbatches. gpipe: backward passes start after the step's last forward "
   "pass; 1f1b: at most one microbatch is in flight for each stage from here to the last. Both "
   "need wiring = \"static\" and are meant for comparison."},
  {RUN(pipeline, in_flight), ints(0, 65536),
   "Microbatches in flight per source, at most. 0: as many in all as keep every device busy, at "
   "first four for each peer of the run; each step teaches how long microbatches are on links. A "
   "source has its share by speed."},
  {RUN(pipeline, layers), ints(1, 4096),
   "Number of layers of each stage; they must add up to the model's. Empty: cut by cost.",
   "[3, 3, 2]"},

  {RUN(codec, forward), one_of(kBoundaryCodecs),
   "Encoding of activations between stages. auto: chosen per boundary from measurements, within "
   "error_budget."},
  {RUN(codec, backward), one_of(kBoundaryCodecs),
   "Encoding of the gradients of activations between stages."},
  {RUN(codec, averaging), one_of(kAveragingCodecs),
   "Encoding of parameter gradients within a stage. topk: only the largest are sent, and the rest "
   "is kept for the next step."},
  {RUN(codec, block), ints(0, 4096),
   "Number of elements that share a scale, for lin8 and dyn8; a power of two from 64. 0: 256."},
  {RUN(codec, scales), one_of(kScales),
   "Type of the scales; bf16 scales are rounded up."},
  {RUN(codec, stochastic), flag(),
   "Whether gradients (backward and averaging) are rounded up or down at random, without bias, "
   "with lin8, h8, int4 and h4."},
  {RUN(codec, topk), above_zero_to(1),
   "Fraction of the elements that topk keeps."},
  {RUN(codec, error_feedback), flag(),
   "Whether what the averaging codec loses is added to the next step's gradient; topk always does "
   "that. The remainder dies with its peer: a run that loses peers then no longer ends with the "
   "parameters of the run without losses."},
  {RUN(codec, error_budget), above_zero_to(1),
   "Largest relative L2 error that a codec chosen by auto may make."},
  {RUN(codec, checksums), one_of(kTileChecksums),
   "Whether each 65536 values of a tensor carry a checksum. auto: only on links that are not "
   "encrypted, since the cipher checks every byte, and not in averages over shared memory. never: "
   "not even elsewhere, where nothing but TCP's 16 bits notices a changed byte."},

  {RUN(wiring, alpha), above_zero_to(1),
   "Weight of the newest observation in the moving average of a peer's service time."},
  {RUN(wiring, in_flight_per_peer), ints(1, Limits::in_flight_per_next_peer_max),
   "Maximum number of microbatches that one sender has at one peer of the next stage."},
  {RUN(wiring, hop_timeout_seconds), above_zero_to(kDaySeconds),
   "Time limit of one hop, or four times what hops usually take where that is longer, at most ten "
   "times the limit; after that the microbatch is sent to another peer."},
  {RUN(wiring, hedge_share), share(),
   "Maximum fraction of microbatches that are tried a second time because a peer is late. 0: "
   "none. What is not used is kept, up to one step's microbatches."},
  {RUN(wiring, stay_in_zone), flag(),
   "Whether microbatches go to peers of the sender's zone as far as their speeds allow, once peers "
   "say zones (peer.zone) and bytes cost something (money.egress_price, peer.egress_price)."},

  {RUN(balance, shadows), one_of_or_ints(kShadows, 0, Limits::peers_max),
   "Number of peers of other stages that follow each stage in host memory and take it over when "
   "it loses all its peers. auto: where they cost next to nothing."},
  {RUN(balance, moves), flag(),
   "Whether peers move, and joiners go, to the stage where they help most. false: peers stay, and "
   "joiners go where peers are missing."},
  {RUN(balance, period_seconds), above_zero_to(kDaySeconds),
   "How often the planner looks for moves."},

  {RUN(checkpoint, every_steps), ints(0, kAny),
   "Number of steps between checkpoints. 0: by time only, at the end, and when the run is "
   "drained."},
  {RUN(checkpoint, every_minutes), reals(0, 525600),
   "Age of the newest checkpoint at which a step's end writes another one. 0: by steps only, at "
   "the end, and when the run is drained; both 0: none before the end."},
  {RUN(checkpoint, keep), ints(1, 1 << 20),
   "Number of the newest checkpoints to keep."},
  {RUN(checkpoint, keep_every), ints(0, kAny),
   "Checkpoints of each multiple of this many steps are kept, too. 0: none."},
  {RUN(checkpoint, keep_best), ints(0, 1 << 20),
   "Number of checkpoints with the lowest held-out loss that are kept, too; only versions that "
   "were evaluated count (eval.every_steps). 0: none."},
  {RUN(checkpoint, optimizer), flag(),
   "Whether checkpoints include the optimizer's state (two to three times the bytes). false: a "
   "run can't resume from them and starts over."},
  {RUN(checkpoint, peers_write), flag(),
   "Whether peers that see the run's checkpoints folder write their stage there themselves, each "
   "a part. false: everything goes through the coordinator, as it does from peers that don't see "
   "the folder."},
  {RUN(checkpoint, store), text(),
   "Object storage to which the coordinator copies each checkpoint, and from which a run goes on "
   "whose folder has none as new: `s3://BUCKET/PATH` or `gs://BUCKET/PATH`. Empty: none.",
   "\"s3://my-bucket/runs\"", true},
  {RUN(checkpoint, python), text(),
   "Program, by path or name: a Python with pyarrow, which reads and writes checkpoint.store.", "",
   true},

  {RUN(eval, every_steps), ints(0, kAny),
   "Number of steps between evaluations of the held-out sequences through the swarm. 0: only at "
   "the end."},
  {RUN(eval, sequences_max), ints(1, kAny),
   "Maximum number of held-out sequences in one evaluation."},

  {RUN(net, listen), text(),
   "HOST:PORT that the coordinator listens on; port 0: chosen by the system. Beyond this machine "
   "its links are authenticated and encrypted, and peers join by the string that it prints "
   "(docs/security.md)."},
  {RUN(net, advertise), text(),
   "HOST:PORT at which other machines reach the coordinator. Empty: this machine's own addresses.",
   "\"192.0.2.7:7400\"", true},
  {RUN(net, page), text(),
   "HOST:PORT at which the coordinator serves the run's web page and its metrics (docs/page.md); "
   "port 0: chosen by the system; \"none\": nowhere. Beyond this machine it is served over TLS, to "
   "those who show the run's token or an observer's invite."},
  {RUN(net, admit_bytes), bytes(),
   "Limit on the activations that a peer admits, in bytes. 0: derived from its memory.",
   "\"512M\""},
  {RUN(net, heartbeat_seconds), above_zero_to(3600),
   "Interval between the heartbeats of a peer and the coordinator. It is longer with more peers "
   "than would send 1000 a second."},
  {RUN(net, peer_silence_seconds), reals(0, kDaySeconds),
   "How long a peer may be silent before it counts as lost; at least two heartbeats. 0: about "
   "four and a half heartbeats, more for a peer whose heartbeats come unevenly."},
  {RUN(net, collect_seconds), reals(0, kDaySeconds),
   "How long a restarted coordinator waits for the peers that it had before it ends their seats; "
   "longer while they still come. "
   "Where each stage has one and no `standby` is named, a silence (`peer_silence_seconds`) is "
   "enough."},
  {RUN(net, coordinator_patience_seconds), reals(0, 365 * kDaySeconds),
   "How long a peer whose coordinator is gone continues with what it holds and tries to reach "
   "one; then it ends."},
  {RUN(net, standby), texts(),
   "Addresses of standby coordinators, which peers try when this one is gone."},
  {RUN(net, peers_wait_seconds), reals(0, 365 * kDaySeconds),
   "How long a run that went back to a checkpoint waits until every stage has a peer again, and a "
   "coordinator that hears from nobody waits for its peers or for newcomers; then the run ends. "
   "Both wait for outlast_seconds while the addresses of lost peers don't refuse connections."},
  {RUN(net, build_seconds), above_zero_to(365 * kDaySeconds),
   "How long a peer may build its stage or fetch its state without any progress before it is let "
   "go."},
  {RUN(net, outlast_seconds), reals(0, 365 * kDaySeconds),
   "How long what can't reach anybody is tried again without any progress: a microbatch that no "
   "peer of the next stage takes, an averaging round whose links break. Then the run ends."},
  {RUN(net, transport), one_of(kTransports),
   "How activations, gradients and other large payloads travel between peers that reach each other "
   "directly; everything else travels over TCP (docs/transports.md). shm: over shared memory "
   "within one machine. ucx: over UCX between addresses in `security.trusted_networks`. streams: "
   "over several TCP connections at once, where one can't fill the line. auto: over shared memory "
   "within one machine, over UCX between such addresses where both ends have RDMA hardware, else "
   "over several connections; each end tries first whether that is faster than one TCP "
   "connection. Where a way can't be had: over TCP.", "", true},
  {RUN(net, streams), ints(2, 16),
   "How many connections `streams` has between two peers.", "", true},
  {RUN(net, islands), one_of(kIslands),
   "host: a stage's peers on one machine sum gradients there before all of it average, so that its "
   "line carries them once (docs/transports.md). none: they don't.", "", true},
  {RUN(net, fabric), one_of(kFabrics),
   "How the sums of an island's GPUs move. auto: from GPU to GPU, by NCCL where each peer has one "
   "of its own, else by CUDA's mapped memory, where `optimizer.state_memory` is \"device\" and "
   "nothing is fed back. none: over links.", "", true},

  {RUN(security, insecure), flag(),
   "true: links beyond this machine are neither authenticated nor encrypted, for benchmarks on a "
   "private network."},
  {RUN(security, loopback), flag(),
   "true: links within this machine are authenticated and encrypted, too, whatever `insecure` "
   "says.", "", true},
  {RUN(security, trusted_networks), texts(),
   "Ranges of IP addresses, such as 10.1.0.0/16, between which payloads may travel over UCX, "
   "neither authenticated nor encrypted. Name networks where nobody but the run's members can "
   "read or send anything; they can end each other's processes there (docs/security.md). Empty: "
   "none.",
   "[\"10.1.0.0/16\"]", true},
  {RUN(security, etcd_authority), text(),
   "PEM file, on the coordinator's machine, of the authority that signs the certificates of "
   "etcd's members; etcd is then reached over HTTPS. Empty: in clear text."},
  {RUN(security, etcd_certificate), text(),
   "PEM file with the client certificate that is shown to etcd. Empty: none."},
  {RUN(security, etcd_key), text(),
   "PEM file with that certificate's key, which only its owner may read."},

  {RUN(log, level), one_of(kLogLevels),
   "Lowest severity that is logged."},
  {RUN(log, tensorboard), flag(),
   "Whether the numbers of each step and evaluation are also written as TensorBoard event files, "
   "into `tensorboard/` of the run folder (docs/logging.md).", "", true},
  {RUN(log, command), text(),
   "Command that the coordinator starts with `/bin/sh -c` and that gets each line of `log.jsonl` "
   "on its standard input (docs/logging.md). Empty: none.", "\"python3 to_wandb.py\"", true},

  {RUN(money, currency), text(),
   "Currency of all prices, as it is shown.", "", true},
  {RUN(money, egress_price), from_zero(),
   "Price of a gigabyte (10^9 bytes) that a peer sends to other machines, where the peer's "
   "`peer.egress_price` says no other.", "", true},
  {RUN(money, coordinator_price), from_zero(),
   "Price of the coordinator's machine per hour.", "", true},
  {RUN(money, budget), from_zero(),
   "The run ends with a checkpoint when it has cost this much. 0: it has no such bound.", "", true},
  {RUN(money, budget_hours), from_zero(),
   "The run ends with a checkpoint when it has trained for this many hours, all starts together. "
   "0: it has no such bound.", "", true},
});

// clang-format on

#undef RUN

constexpr RetiredKey kRetiredKeys[] = {
    {"codec", "state", "\"none\"", "A joiner receives its state bit for bit."},
    {"net", "connect_timeout_seconds", {}, "A peer tries to connect for ten seconds."},
};

}  // namespace

std::span<const RetiredKey> retired_keys() {
  return kRetiredKeys;
}

std::span<const KeySpec> run_keys() {
  return kRunKeys;
}

const RetiredKey* find_retired(std::string_view section, std::string_view key) {
  for (const RetiredKey& retired : kRetiredKeys)
    if (retired.section == section && retired.key == key) return &retired;
  return nullptr;
}

}  // namespace swarmline
