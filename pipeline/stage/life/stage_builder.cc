#include "pipeline/stage/life/stage_builder.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/limits.h"
#include "base/log.h"
#include "base/marks.h"
#include "engine/config/load.h"
#include "pipeline/protocol/message_kinds.h"
#include "pipeline/stage/common/seat_memory.h"

namespace swarmline {

namespace {

constexpr std::uint64_t kAdmitBytesDefault = 1 * kGiB;
// What a stage leaves of a device's memory is shared with peers that nobody here knows of.
constexpr std::uint64_t kAdmittedPart = 4;

double mib(std::uint64_t bytes) {
  return static_cast<double>(bytes) / static_cast<double>(kMiB);
}

Result<void> check_cuts(const std::vector<SeatOffer::Cut>& cuts, const RunConfig& config) {
  std::uint32_t layer = 0;
  bool fits = cuts.size() == config.pipeline.stages;
  for (const SeatOffer::Cut& cut : cuts) {
    fits = fits && cut.first_layer == layer && cut.last_layer >= layer &&
           (cut.last_layer - layer) % config.model.share_layers == 0;
    layer = cut.last_layer;
  }
  if (!fits || layer != config.model.layers)
    return fail(ErrorCode::kCorrupt,
                "the coordinator's cut of the layers does not divide the model");
  return {};
}

bool wants_recompute(const SeatedStageParts& parts) {
  const Recompute wish = parts.config.pipeline.recompute;
  if (wish != Recompute::kAuto) return wish == Recompute::kAlways;
  const std::uint64_t kept =
      retained_bytes(parts.spec, parts.stage, parts.config.batch.microbatch, false);
  return kept * parts.config.wiring.in_flight_per_peer > parts.admit_bytes;
}

// 0: not known.
std::uint64_t device_memory(const StagePeerOptions& options) {
  return options.free_device_memory ? options.free_device_memory(options.machine.device) : 0;
}

std::uint64_t less(std::uint64_t bytes, std::uint64_t by) {
  return bytes - std::min(bytes, by);
}

// Microbatches have what is left when the stage has its memory, and who may sum past links finds
// room for that; a device that has no such room sums over links, and leaves none free in vain.
void admit(SeatedStageParts& parts, std::uint64_t left, std::uint64_t island) {
  if (left >= island) left -= island;
  parts.admit_bytes = std::min(left, std::max(kAdmitBytesDefault, left / kAdmittedPart));
}

void measure_room(const std::string& device, std::uint64_t left, std::uint64_t island,
                  SeatedStageParts& parts) {
  admit(parts, left, island);
  log(LogLevel::kInfo, "{} has {:.1f} MiB left: microbatches may take {:.1f} MiB{}", device,
      mib(left), mib(parts.admit_bytes), parts.recompute ? ", and are computed again" : "");
  if (left >= island) return;
  SWARMLINE_MARK("stage.no_room_for_islands");
  log(LogLevel::kWarn,
      "{} has no room for the sum of an island's GPUs, {:.1f} MiB where {:.1f} MiB are left: "
      "averages go over links if there is no more by then; use more stages (pipeline.stages), or "
      "net.fabric = \"none\", which needs no such room",
      device, mib(island), mib(left));
}

// What would make it smaller is said of what it has. `free`: 0: not known.
Error too_large(const StagePeerOptions& options, const SeatedStageParts& parts,
                const SeatMemory& memory, std::uint64_t free, const Error& error) {
  log(LogLevel::kWarn, "making stage {}: {}", parts.stage.stage.value, error.what);
  std::string smaller = "use more stages (pipeline.stages)";
  if (memory.optimizer > 0)
    smaller += parts.config.optimizer.state == MomentsKind::k8Bit
                   ? "; use optimizer.state_memory = \"host\""
                   : "; use optimizer.state = \"8bit\" or optimizer.state_memory = \"host\"";
  if (memory.residuals > 0) smaller += "; use a codec.averaging without error feedback";
  return {
      error.code,
      fmt::format("{} has no room for stage {} (layers {} to {}), which takes {:.1f} MiB of its "
                  "memory beside microbatches{}: {}",
                  options.machine.device, parts.stage.stage.value, parts.stage.first_layer,
                  parts.stage.last_layer - 1, mib(memory.taken()),
                  free > 0 ? fmt::format(", and {:.1f} MiB are free", mib(free)) : "", smaller)};
}

Result<void> build_model(const StagePeerOptions& options, SeatedStageParts& parts) {
  auto model = options.make_model(parts.spec, parts.stage,
                                  {.device = options.machine.device,
                                   .threads = static_cast<int>(options.machine.threads),
                                   .recompute = parts.recompute});
  if (!model) return std::unexpected(std::move(model).error());
  parts.model = std::move(*model);
  parts.state = std::make_unique<ParameterState>(*parts.model, parts.config);
  return parts.state->take_memory(keeps_residuals_there(parts.config));
}

}  // namespace

SeatOffer offer_of(const wire::Welcome& welcome, bool sealed_links) {
  SeatOffer offer{.seat = from_wire(welcome.seat()),
                  .term = Term{welcome.term()},
                  .era = Era{welcome.era()},
                  .run_id = welcome.run_id(),
                  .seat_proof = welcome.seat_proof(),
                  .link_key = welcome.link_key(),
                  .config = welcome.config_toml(),
                  .vocab = welcome.vocab(),
                  .separator = welcome.separator(),
                  .cuts = {},
                  .version = Version{welcome.version()},
                  .joining = welcome.joining(),
                  .resumed = welcome.resumed(),
                  .keeps_followed = welcome.keeps_followed(),
                  .sealed_links = sealed_links};
  for (const wire::StageCut& cut : welcome.cuts())
    offer.cuts.push_back({.first_layer = cut.first_layer(), .last_layer = cut.last_layer()});
  offer.heartbeat = heartbeat_period_from(welcome.heartbeat_seconds());
  return offer;
}

Result<SeatedStageParts> parts_of(const SeatOffer& offer, const PeerConfig& machine) {
  SeatedStageParts parts;
  auto config = run_config_from_text(offer.config, "the coordinator's config");
  if (!config) return std::unexpected(config.error());
  parts.config = std::move(*config);
  if (offer.sealed_links && parts.config.codec.checksums == TileChecksums::kAuto) {
    SWARMLINE_MARK("stage.links_check_the_tiles");
    parts.config.codec.checksums = TileChecksums::kNever;
  }
  auto spec = resolve_model(parts.config, offer.vocab, offer.separator);
  if (parts.config.model.vocab == 0) parts.config.model.vocab = offer.vocab;
  if (!spec) return std::unexpected(spec.error());
  parts.spec = std::move(*spec);
  parts.self = offer.seat;
  if (parts.self.stage.value >= offer.cuts.size())
    return fail(ErrorCode::kCorrupt, "a seat at a stage that the run does not have");
  SWARMLINE_TRY(check_cuts(offer.cuts, parts.config));
  const SeatOffer::Cut& cut = offer.cuts[parts.self.stage.value];
  parts.stage = {.stage = parts.self.stage,
                 .stages = static_cast<std::uint32_t>(offer.cuts.size()),
                 .first_layer = cut.first_layer,
                 .last_layer = cut.last_layer};
  parts.term = offer.term;
  parts.era = offer.era;
  parts.admit_bytes = parts.config.net.admit_bytes;
  if (parts.admit_bytes == 0)
    parts.admit_bytes = machine.memory_bytes > 0 ? machine.memory_bytes / 4 : kAdmitBytesDefault;
  parts.recompute = wants_recompute(parts);
  parts.joining = offer.joining;
  parts.version = offer.version;
  return parts;
}

Result<void> build_stage(const StagePeerOptions& options, SeatedStageParts& parts) {
  if (parts.stage.has_embedding()) {
    RunConfig config = parts.config;
    config.model.vocab = parts.spec.shape.vocab;  // what the coordinator found the data to need
    auto source = options.make_source(config);
    if (!source) return std::unexpected(source.error());
    parts.source = std::move(*source);
  }
  const SeatMemory memory = seat_memory(parts.config, parts.spec, parts.stage);
  const std::uint64_t island = options.gpu.uuid.empty() ? 0 : memory.island;
  const std::uint64_t free = device_memory(options);
  const bool said = parts.config.net.admit_bytes > 0 || options.machine.memory_bytes > 0;
  const bool measures = !said && free > 0;
  // Whether graphs are kept is the model's, so that it must be known before that is there.
  if (measures) {
    admit(parts, less(free, memory.taken()), island);
    parts.recompute = wants_recompute(parts);
  }
  if (auto built = build_model(options, parts); !built)
    return std::unexpected(built.error().code == ErrorCode::kOutOfMemory
                               ? too_large(options, parts, memory, free, built.error())
                               : std::move(built).error());
  if (measures) measure_room(options.machine.device, device_memory(options), island, parts);
  if (options.make_wiring) parts.wiring = options.make_wiring(parts.config, parts.self);
  return {};
}

}  // namespace swarmline
