#include "pipeline/stage/common/phase_codecs.h"

#include "engine/config/configured_codec.h"

namespace swarmline {

PhaseCodecs::PhaseCodecs(const RunConfig& config)
    : options_(codec_options(config.codec)),
      boundaries_(config.pipeline.stages - 1),
      configured_{.forward = configured_codec(config.codec.forward, config.codec),
                  .backward = configured_codec(config.codec.backward, config.codec)} {}

Result<void> PhaseCodecs::open(const Phase& phase, const wire::OpenPhase& message) {
  std::vector<Codecs> codecs(boundaries_, configured_);
  for (const wire::BoundaryCodecs& boundary : message.codecs()) {
    const auto forward = parse_codec(boundary.forward(), options_);
    const auto backward = parse_codec(boundary.backward(), options_);
    if (boundary.boundary() >= boundaries_ || !forward || !backward ||
        forward->kind == CodecKind::kTopK || backward->kind == CodecKind::kTopK)
      return fail(ErrorCode::kCorrupt, "a phase with codecs that no boundary has");
    codecs[boundary.boundary()] = {.forward = *forward, .backward = *backward};
  }
  phases_[phase] = std::move(codecs);
  std::erase_if(phases_, [&](const auto& entry) {
    return entry.first.kind == phase.kind && entry.first.step + kPhasesKept < phase.step;
  });
  return {};
}

void PhaseCodecs::fill(const Phase& phase, wire::PhaseHoldings& holdings) const {
  for (std::uint32_t boundary = 0; boundary < boundaries_; ++boundary) {
    const Codecs& codecs = of(phase, boundary);
    wire::BoundaryCodecs* out = holdings.add_codecs();
    out->set_boundary(boundary);
    out->set_forward(std::string(name_of(codecs.forward.kind)));
    out->set_backward(std::string(name_of(codecs.backward.kind)));
  }
}

const PhaseCodecs::Codecs& PhaseCodecs::of(const Phase& phase, std::uint32_t boundary) const {
  const auto found = phases_.find(phase);
  if (found == phases_.end() || boundary >= boundaries_) return configured_;
  return found->second[boundary];
}

}  // namespace swarmline
