#include "pipeline/stage/life/stage_builder.h"

#include <algorithm>
#include <utility>

#include "base/limits.h"
#include "base/log.h"
#include "base/marks.h"
#include "engine/config/load.h"
#include "pipeline/protocol/message_kinds.h"

namespace swarmline {

namespace {

constexpr std::uint64_t kAdmitBytesDefault = 1 * kGiB;
// A device's free memory is shared with the stage's own state: values, what products read, sums of
// two steps, an averaged gradient and two moments, as so many times the values; and with peers that
// nobody here knows of.
constexpr std::uint64_t kStatesOfValues = 7;
constexpr std::uint64_t kAdmittedPart = 4;

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

void measure_room(const StagePeerOptions& options, SeatedStageParts& parts) {
  const bool said = parts.config.net.admit_bytes > 0 || options.machine.memory_bytes > 0;
  if (said || !options.free_device_memory) return;
  const std::uint64_t left = options.free_device_memory(options.machine.device);
  const std::uint64_t state = kStatesOfValues * make_layout(parts.spec, parts.stage).bytes();
  if (left <= state) return;
  parts.admit_bytes = std::max(kAdmitBytesDefault, (left - state) / kAdmittedPart);
  parts.recompute = wants_recompute(parts);
  log(LogLevel::kInfo, "{} has {} MiB left: microbatches may take {} MiB{}", options.machine.device,
      left / kMiB, parts.admit_bytes / kMiB, parts.recompute ? ", and are computed again" : "");
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
  measure_room(options, parts);
  auto model = options.make_model(parts.spec, parts.stage,
                                  {.device = options.machine.device,
                                   .threads = static_cast<int>(options.machine.threads),
                                   .recompute = parts.recompute});
  if (!model) return std::unexpected(model.error());
  parts.model = std::move(*model);
  if (options.make_wiring) parts.wiring = options.make_wiring(parts.config, parts.self);
  return {};
}

}  // namespace swarmline
