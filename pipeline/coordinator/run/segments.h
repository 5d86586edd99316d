// The segments of a run: from which step on it is trained with which settings. A run begins with
// its first; each time that it is started again with other settings, another one begins.
//   What:      the journal has them, and is the only one that knows: a config file may be
//              anybody's. Each is recorded once. One that begins where earlier ones had begun, or
//              before, takes their place: in_force() leaves those out.
//   Position:  step s of a segment begins at from_sequence + (s - from_step) * batch of the
//              training data's order: its config says both (run_config.h). Another batch goes on
//              where the one before got to, other data begins at its own beginning.
//   Delay:     a segment that begins to have one computes its first two steps on its first version,
//              as a run does that begins with it; one that ends it goes on from the newest version.
//   Thread:    pure functions of plain values. Errors: kCorrupt for a text that to_text() did not
//              write, kIncompatible for a newer format, kUserMistake for a change too many.
//   Bounds:    kSegmentsMax of a run, each with a config of Limits::config_file_bytes_max.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/config/begun_run.h"
#include "engine/config/run_config.h"

namespace swarmline {

inline constexpr std::size_t kSegmentsMax = 1000;

struct RunSegment {
  std::uint32_t number = 1;         // counts up
  std::uint64_t first_version = 0;  // its first step is the one after so many
  std::uint64_t tokens_before = 0;  // trained on, up to there
  double wall_seconds = 0;          // when it was decided, since 1970
  std::uint32_t era = 0;
  std::uint32_t vocab = 0;         // of the model
  std::string tokenizer;           // of its data; empty: unknown
  std::vector<KeyChange> changes;  // of the segment before it; none: the run's first
  RunConfig config;                // as its peers have it
};
using RunSegments = std::vector<RunSegment>;  // by number, as recorded

std::string to_text(const RunSegment& segment);
Result<RunSegment> parse_segment(std::string_view text);

// Those that the run was trained with, by first_version, which is 0 for the first of them.
RunSegments in_force(const RunSegments& recorded);
// ---- Of those in force ----
// Of the step after `version`; null: there are none.
const RunSegment* segment_at(const RunSegments& segments, std::uint64_t version);
// That the parameters of `version` were trained on.
std::uint64_t tokens_until(const RunSegments& segments, std::uint64_t version);
// Where the delay of the newest segment began: the step after this version computes on it.
std::uint64_t delayed_since(const RunSegments& segments);

// ---- Of those recorded ----
struct SegmentWish {
  RunConfig config;  // that the coordinator was started with
  std::uint32_t vocab = 0;
  std::string tokenizer;  // of its data; empty: unknown
  bool changes = true;    // false: the newest segment's settings stay, whatever `config` says
};
// What a coordinator that goes on after `version` records; empty: nothing new begins.
Result<std::optional<RunSegment>> next_segment(const RunSegments& recorded, const SegmentWish& wish,
                                               std::uint64_t version);
// Whether it has to go on from a checkpoint, with new peers: they have to hear of it.
bool needs_new_era(const RunSegments& recorded, const SegmentWish& wish);
// Why the run can't go on so; empty: it can.
std::optional<std::string> refusal_of(const RunSegments& recorded, const SegmentWish& wish);
// The config that peers get, with where the segment's data begins.
std::string text_for_peers(const std::string& config_toml, const RunSegment& segment);

// "segment 2 from step 101: optimizer.lr 0.001 -> 0.0005, batch.batch 8 -> 16"
std::string sentence_of(const RunSegment& segment);

}  // namespace swarmline
