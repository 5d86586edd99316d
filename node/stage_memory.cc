#include "node/stage_memory.h"

#include <algorithm>
#include <numeric>

#include "base/limits.h"
#include "base/units.h"
#include "engine/collective/butterfly.h"
#include "engine/config/configured_codec.h"
#include "engine/model/working_memory.h"
#include "engine/optimizer/muon.h"
#include "engine/optimizer/state_layout.h"
#include "pipeline/averaging/averaging_codecs.h"
#include "pipeline/source/lease_window.h"
#include "pipeline/stage/common/seat_memory.h"
#include "pipeline/stage/microbatches/microbatch_task.h"

namespace swarmline {
namespace {

constexpr std::uint64_t kTokenBytes = sizeof(std::int32_t);
// Measured of CPU peers (docs/memory.md): packed matrices, and freed buffers that the C library
// keeps.
constexpr std::uint64_t kLibrariesBytes = 10 * kMiB;
// Large buffers are whole huge pages (base/bytes.cc).
constexpr std::uint64_t kHugeBufferBytes = 32 * kMiB, kHugePageBytes = 2 * kMiB;

std::uint64_t held(std::uint64_t bytes) {
  if (bytes < kHugeBufferBytes) return bytes;
  return (bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
}

// Under way at once in the whole run: as many as the sources ask for, and no more than their open
// steps have.
std::uint32_t all_under_way(const RunConfig& config) {
  const PipelineSection& pipeline = config.pipeline;
  const std::uint32_t sources = pipeline.peers.front();
  const std::uint32_t open = config.microbatches_per_step() * (1 + pipeline.delay);
  if (pipeline.order != OrderKind::kFree && pipeline.in_flight == 0) return open;
  return std::min(window_for(pipeline) * sources, open);
}

std::uint64_t moments_bytes(const RunConfig& config, const ParameterLayout& layout) {
  const StateLayout state = make_state_layout(config.optimizer, layout);
  return held(state.first_bytes) + held(state.second_bytes) +
         held(muon_scratch_bytes(config.optimizer, layout));
}

// What a shadow holds: a version of the parameters, the averaged gradient, both moments.
std::uint64_t shadow_bytes(const RunConfig& config, const ParameterLayout& layout) {
  return (config.pipeline.delay == 1 ? 3 : 2) * held(layout.bytes()) +
         moments_bytes(config, layout);
}

// An even share of all shadows, each of the largest other stage.
std::uint64_t shadows_of_a_peer(const MemoryQuestion& question) {
  const std::uint32_t wanted = question.config.balance.shadows.count;
  if (wanted == 0 || question.cut.size() < 2) return 0;
  const auto& peers = question.config.pipeline.peers;
  const std::uint64_t all = std::uint64_t{wanted} * question.cut.size();
  const std::uint64_t hosts = std::accumulate(peers.begin(), peers.end(), std::uint64_t{0});
  std::uint64_t largest = 0;
  for (const StageSpec& stage : question.cut)
    if (stage.stage != question.cut[question.stage].stage)
      largest =
          std::max(largest, shadow_bytes(question.config, make_layout(question.model, stage)));
  return (all + hosts - 1) / hosts * largest;
}

// A microbatch's buffers on their way: what came, what went on, and the gradient of it.
std::uint64_t payload_bytes(const MemoryQuestion& question) {
  const RunConfig& config = question.config;
  const StageSpec& stage = question.cut[question.stage];
  const std::uint64_t tokens = std::uint64_t{config.batch.microbatch} * config.batch.sequence;
  const std::uint64_t elements = tokens * question.model.hidden_width();
  const DType dtype = question.model.shape.stream_dtype();
  const std::uint64_t forward =
      encoded_bytes(configured_codec(config.codec.forward, config.codec), elements, dtype);
  const std::uint64_t backward =
      encoded_bytes(configured_codec(config.codec.backward, config.codec), elements, dtype);
  std::uint64_t bytes = tokens * kTokenBytes;  // targets
  bytes += stage.has_embedding() ? tokens * kTokenBytes : forward;
  if (!stage.has_head()) bytes += forward + backward;
  return bytes;
}

// One tensor of each microbatch is here decoded: first what came, then its gradient.
std::uint64_t decoded_bytes(const MemoryQuestion& question) {
  const RunConfig& config = question.config;
  return std::uint64_t{config.batch.microbatch} * config.batch.sequence *
         question.model.hidden_width() * size_bytes(question.model.shape.stream_dtype());
}

// Chunks on their way; where peers of one machine sum first, what that is summed in, at the worst.
std::uint64_t averaging_bytes(const MemoryQuestion& question, const ParameterLayout& layout) {
  const std::uint64_t others = question.config.pipeline.peers.at(question.stage) - 1;
  const auto ranks = static_cast<std::uint32_t>(others + 1);
  const std::uint64_t chunks = ButterflyAllReduce::window_chunks(ranks) * others;
  const bool islands = question.config.net.islands == Islands::kHost && ranks > 2;
  return 2 * std::min(chunks * Limits::reduce_chunk_bytes, layout.bytes()) +
         (islands ? held(layout.bytes()) : 0);
}

void add_host_state(const RunConfig& config, const ParameterLayout& layout, PeerMemory& memory) {
  const bool delayed = config.pipeline.delay == 1;
  memory.parameters = (delayed ? 3 : 1) * held(layout.bytes());
  memory.gradients = (delayed ? 3 : 2) * held(layout.bytes());
  memory.residuals = keeps_residuals(config) ? 2 * held(layout.bytes()) : 0;
  const std::uint64_t saved = saved_state_bytes(config, layout) + (delayed ? layout.bytes() : 0);
  memory.checkpoint = held(saved) + std::min<std::uint64_t>(saved, Limits::checkpoint_piece_bytes);
}

}  // namespace

UnderWay under_way_at(const RunConfig& config, const StageSpec& stage) {
  const std::uint32_t peers = config.pipeline.peers.at(stage.stage.value);
  const std::uint32_t share = (all_under_way(config) + peers - 1) / peers;
  switch (config.pipeline.order) {
    case OrderKind::kGPipe:
      return {.microbatches = share, .graphs = share};
    case OrderKind::k1F1B:
      return {.microbatches = share,
              .graphs = std::min(share, stage.stages - std::uint32_t{stage.stage.value})};
    case OrderKind::kFree:
      break;
  }
  // The last stage goes on with the backward of what it has just computed, but for the forward that
  // its device has been given ahead, and for weight gradients that are added later.
  if (!stage.has_head()) return {.microbatches = share, .graphs = share};
  const std::uint32_t computed = std::min(share, 2U);
  const std::uint32_t waiting = std::min(share - computed, kAddingMaxAtLast);
  return {.microbatches = share, .graphs = computed + waiting, .waiting = waiting};
}

std::uint64_t saved_state_bytes(const RunConfig& config, const ParameterLayout& layout) {
  return layout.bytes() + make_state_layout(config.optimizer, layout).bytes();
}

PeerMemory peer_memory(const MemoryQuestion& question, bool recompute) {
  const RunConfig& config = question.config;
  const StageSpec& stage = question.cut[question.stage];
  const std::uint32_t rows = config.batch.microbatch;
  const ParameterLayout layout = make_layout(question.model, stage);
  const UnderWay under_way = under_way_at(config, stage);
  const auto kept = [&](bool again) { return retained_bytes(question.model, stage, rows, again); };
  PeerMemory memory;
  add_host_state(config, layout, memory);
  memory.optimizer = moments_bytes(config, layout);
  const std::uint32_t waiting = recompute ? 0 : under_way.waiting;
  memory.activations = (under_way.graphs - waiting) * kept(recompute) +
                       waiting * bytes_until_added(question.model, stage, rows);
  memory.payloads = under_way.microbatches * (payload_bytes(question) + decoded_bytes(question));
  memory.working = working_bytes(question.model, stage, rows) + (recompute ? kept(false) : 0);
  memory.libraries = kLibrariesBytes;
  memory.averaging = averaging_bytes(question, layout);
  memory.shadows = shadows_of_a_peer(question);
  return memory;
}

CudaPeerMemory cuda_peer_memory(const MemoryQuestion& question, bool recompute) {
  const RunConfig& config = question.config;
  const StageSpec& stage = question.cut[question.stage];
  const std::uint32_t rows = config.batch.microbatch;
  const ParameterLayout layout = make_layout(question.model, stage);
  const SeatMemory seat = seat_memory(config, question.model, stage);
  const UnderWay under_way = under_way_at(config, stage);
  const auto kept = [&](bool again) {
    return retained_bytes_on_cuda(question.model, stage, rows, again);
  };
  CudaPeerMemory memory;
  memory.device.parameters = seat.parameters;
  memory.device.gradients = seat.gradients;
  memory.device.optimizer = seat.optimizer;
  memory.device.residuals = seat.residuals;
  memory.device.averaging = seat.island;
  memory.device.activations = under_way.graphs * kept(recompute);
  // The gradient that comes is decoded there.
  memory.device.working = working_bytes(question.model, stage, rows) +
                          (stage.has_head() ? 0 : decoded_bytes(question)) +
                          (recompute ? kept(false) : 0);
  add_host_state(config, layout, memory.host);
  memory.host.optimizer = seat.optimizer > 0 ? 0 : moments_bytes(config, layout);
  memory.host.payloads = under_way.microbatches * payload_bytes(question);
  memory.host.averaging = averaging_bytes(question, layout);
  memory.host.shadows = shadows_of_a_peer(question);
  return memory;
}

}  // namespace swarmline
