#include "pipeline/averaging/averaging_codecs.h"

#include <utility>

#include "engine/config/configured_codec.h"

namespace swarmline {

bool keeps_residuals(const RunConfig& config) {
  return config.codec.error_feedback ||
         configured_codec(config.codec.averaging, config.codec).kind == CodecKind::kTopK;
}

AveragingCodecs::AveragingCodecs(const RunConfig& config, std::uint64_t gradient_bytes)
    : config_(config),
      codec_(configured_codec(config.codec.averaging, config.codec)),
      feedback_(keeps_residuals(config)),
      current_(Buffer::zeroed(feedback_ ? gradient_bytes : 0)),
      next_(Buffer::zeroed(feedback_ ? gradient_bytes : 0)) {}

void AveragingCodecs::set_up(StageAverager::Round& round, std::uint64_t first) {
  ButterflySpec& spec = round.spec;
  spec.scatter.assign(spec.ranks, codec_);
  spec.gather =
      codec_.kind == CodecKind::kTopK ? codec_of_sum(codec_, spec.ranks, spec.dtype) : codec_;
  if (config_.codec.stochastic)
    spec.key = codec_key(config_.run.seed, round.key.phase.step, round.key.group.value, 0);
  if (feedback_)
    round.residual = {.current = current_.bytes().subspan(first, round.input.size()),
                      .next = next_.bytes().subspan(first, round.input.size())};
}

void AveragingCodecs::on_commit(bool skipped) {
  if (!feedback_ || skipped) return;
  std::swap(current_, next_);
  ++turn_;
}

}  // namespace swarmline
