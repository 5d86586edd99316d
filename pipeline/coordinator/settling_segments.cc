// The segments of a run: what the journal says of them, and when another one begins.
#include <utility>

#include "pipeline/coordinator/run/segments.h"
#include "pipeline/coordinator/settling.h"

namespace swarmline {

SegmentWish Settling::wish() const {
  const RunShape& shape = parts_.shape;
  SegmentWish wish{.config = shape.config,
                   .vocab = shape.options.model.shape.vocab,
                   .tokenizer = shape.options.tokenizer,
                   .changes = shape.options.changes_run};
  wish.config.log = LogSection{};  // a command may hold a password
  return wish;
}

// An old journal has none: what it goes on with is the first one's.
Result<void> Settling::take_up_segments(RunSegments recorded) {
  parts_.segments = std::move(recorded);
  if (parts_.segments.empty()) return begin_segment(0);
  if (const auto refusal = refusal_of(parts_.segments, wish()))
    return swarmline::fail(ErrorCode::kUserMistake, *refusal);
  parts_.identity.config_toml =
      text_for_peers(parts_.shape.options.config_toml, parts_.segments.back());
  return {};
}

// From the step after `version` on the run has the settings that this coordinator was started with.
Result<void> Settling::begin_segment(std::uint64_t version) {
  CoordinatorParts& p = parts_;
  auto next = next_segment(p.segments, wish(), version);
  if (!next) return std::unexpected(std::move(next).error());
  if (*next) {
    RunSegment& segment = **next;
    segment.era = p.identity.era.value;
    segment.wall_seconds = p.events.wall_seconds();
    p.journal.record_segment(segment);
    if (changes_codecs(segment.changes)) p.journal.record_codecs(p.boundaries.to_text());
    if (segment.number > 1) p.events.event("segment", sentence_of(segment));
    p.segments.push_back(std::move(segment));
  }
  p.identity.config_toml = text_for_peers(p.shape.options.config_toml, p.segments.back());
  return {};
}

SequenceOptions Settling::sequence_at(std::uint64_t version) const {
  SequenceOptions options = sequence_from(parts_.shape.options, version);
  options.delayed_since = delayed_since(in_force(parts_.segments));
  return options;
}

}  // namespace swarmline
