#include "pipeline/coordinator/run/segments.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "engine/config/load.h"
#include "engine/store/json_value.h"
#include "engine/store/json_writer.h"

namespace swarmline {
namespace {

constexpr std::uint64_t kSegmentFormat = 1;

std::uint64_t position_at(const RunConfig& config, std::uint64_t step) {
  return config.data.from_sequence + (step - config.data.from_step) * config.batch.batch;
}

std::uint64_t tokens_at(const RunSegment& segment, std::uint64_t version) {
  return segment.tokens_before +
         (version - segment.first_version) * segment.config.tokens_per_step();
}

// Where the data of one that follows `before` begins.
void place(RunConfig& config, const RunConfig& before, const std::vector<KeyChange>& changes,
           std::uint64_t version) {
  const bool new_data = changes_data(changes);
  const bool moves = new_data || config.batch.batch != before.batch.batch;
  config.data.from_step = moves ? version : before.data.from_step;
  config.data.from_sequence = new_data ? 0
                              : moves  ? position_at(before, version)
                                       : before.data.from_sequence;
}

// The settings that a run is to go on with.
RunConfig wanted_after(const RunSegments& recorded, const SegmentWish& wish) {
  return wish.changes || recorded.empty() ? wish.config : recorded.back().config;
}

}  // namespace

// ---- As text ------------------------------------------------------------------------------------

std::string to_text(const RunSegment& segment) {
  JsonWriter json;
  json.begin_object()
      .member("format", kSegmentFormat)
      .member("number", segment.number)
      .member("first_step", segment.first_version + 1)
      .member("tokens_before", segment.tokens_before)
      .member("wall_seconds", segment.wall_seconds)
      .member("era", segment.era)
      .member("vocab", segment.vocab)
      .member("tokenizer", segment.tokenizer);
  json.key("changes").begin_array();
  for (const KeyChange& change : segment.changes)
    json.begin_object()
        .member("key", change.key)
        .member("before", change.before)
        .member("after", change.after)
        .end_object();
  json.end_array().member("config", to_toml(segment.config)).end_object();
  return json.take();
}

Result<RunSegment> parse_segment(std::string_view text) {
  const auto json = parse_json(text);
  if (!json) return fail(ErrorCode::kCorrupt, "a segment in the journal is " + json.error().what);
  const std::uint64_t format = (*json)["format"].count();
  if (format > kSegmentFormat)
    return fail(ErrorCode::kIncompatible,
                fmt::format("a segment in the journal has format {}, and this program reads {}",
                            format, kSegmentFormat));
  RunSegment segment;
  segment.number = static_cast<std::uint32_t>((*json)["number"].count());
  const std::uint64_t first_step = (*json)["first_step"].count();
  if (format == 0 || segment.number == 0 || first_step == 0)
    return fail(ErrorCode::kCorrupt, "a segment in the journal has no number or no first step");
  segment.first_version = first_step - 1;
  segment.tokens_before = (*json)["tokens_before"].count();
  segment.wall_seconds = (*json)["wall_seconds"].number_or(0);
  segment.era = static_cast<std::uint32_t>((*json)["era"].count());
  segment.vocab = static_cast<std::uint32_t>((*json)["vocab"].count());
  segment.tokenizer = (*json)["tokenizer"].string;
  for (const JsonValue& change : (*json)["changes"].items)
    segment.changes.push_back({.key = change["key"].string,
                               .before = change["before"].string,
                               .after = change["after"].string});
  auto config = run_config_from_text((*json)["config"].string,
                                     fmt::format("segment {} of the journal", segment.number));
  if (!config) return fail(ErrorCode::kCorrupt, std::move(config).error().what);
  segment.config = std::move(*config);
  if (segment.config.data.from_step > segment.first_version)
    return fail(ErrorCode::kCorrupt, "a segment in the journal begins before its data");
  return segment;
}

std::string sentence_of(const RunSegment& segment) {
  std::string text =
      fmt::format("segment {} from step {}", segment.number, segment.first_version + 1);
  if (segment.changes.empty()) return text;
  for (std::size_t i = 0; i < segment.changes.size(); ++i) {
    const KeyChange& change = segment.changes[i];
    text +=
        fmt::format("{} {} {} -> {}", i == 0 ? ":" : ",", change.key, change.before, change.after);
  }
  if (changes_data(segment.changes)) text += "; the new data begins with its first sequence";
  return text;
}

// ---- Which counts -------------------------------------------------------------------------------

RunSegments in_force(const RunSegments& recorded) {
  RunSegments segments;
  for (const RunSegment& segment : recorded) {
    while (!segments.empty() && segments.back().first_version >= segment.first_version)
      segments.pop_back();
    segments.push_back(segment);
  }
  return segments;
}

const RunSegment* segment_at(const RunSegments& segments, std::uint64_t version) {
  const RunSegment* found = nullptr;
  for (const RunSegment& segment : segments)
    if (segment.first_version <= version) found = &segment;
  return found;
}

std::uint64_t tokens_until(const RunSegments& segments, std::uint64_t version) {
  const RunSegment* const segment = segment_at(segments, version);
  return segment == nullptr ? 0 : tokens_at(*segment, version);
}

std::uint64_t delayed_since(const RunSegments& segments) {
  std::uint64_t since = 0;
  for (auto segment = segments.rbegin(); segment != segments.rend(); ++segment) {
    if (segment->config.pipeline.delay == 0) break;
    since = segment->first_version;
  }
  return since;
}

// ---- What comes next ----------------------------------------------------------------------------

std::string text_for_peers(const std::string& config_toml, const RunSegment& segment) {
  const DataSection& data = segment.config.data;
  if (data.from_step == 0 && data.from_sequence == 0) return config_toml;
  auto config = run_config_from_text(config_toml, "the run's config");
  SWARMLINE_CHECK_MSG(config.has_value(), config ? "" : config.error().what);
  config->data.from_step = data.from_step;
  config->data.from_sequence = data.from_sequence;
  return to_toml(*config);
}

Result<std::optional<RunSegment>> next_segment(const RunSegments& recorded, const SegmentWish& wish,
                                               std::uint64_t version) {
  const RunConfig wanted = wanted_after(recorded, wish);
  RunSegment next{.number = static_cast<std::uint32_t>(recorded.size()) + 1,
                  .vocab = wish.vocab,
                  .tokenizer = wish.tokenizer,
                  .changes = {},
                  .config = wanted};
  const RunSegments segments = in_force(recorded);
  const RunSegment* const before = segment_at(segments, version);
  if (before == nullptr) {
    next.config.data.from_step = next.config.data.from_sequence = 0;
    return next;
  }
  next.changes = segment_changes(before->config, wanted);
  // Those that begin later are not trained with any more.
  const bool beyond = segments.back().first_version > version;
  if (next.changes.empty() && !beyond) return std::nullopt;
  if (recorded.size() >= kSegmentsMax)
    return fail(
        ErrorCode::kUserMistake,
        fmt::format("{} differs, and the run was changed {} times already, as often as it "
                    "may; begin a new one with run.init = \"checkpoint:PATH\"",
                    next.changes.empty() ? "it" : next.changes.front().key, kSegmentsMax - 1));
  next.first_version = version;
  next.tokens_before = tokens_at(*before, version);
  place(next.config, before->config, next.changes, version);
  return next;
}

bool needs_new_era(const RunSegments& recorded, const SegmentWish& wish) {
  if (recorded.empty() || !wish.changes) return false;
  const auto changes = segment_changes(recorded.back().config, wish.config);
  return std::ranges::any_of(changes, [](const KeyChange& one) { return one.key != kStepsKey; });
}

std::optional<std::string> refusal_of(const RunSegments& recorded, const SegmentWish& wish) {
  if (recorded.empty()) return std::nullopt;
  const RunSegment& newest = recorded.back();
  if (const auto difference = fixed_difference(newest.config, wish.config))
    return *difference +
           "; this can't change any more: give this run another name by --name NAME, or move the "
           "old one aside by --fresh";
  if (!wish.changes || !changes_data(segment_changes(newest.config, wish.config)))
    return std::nullopt;
  if (newest.vocab != wish.vocab)
    return fmt::format(
        "data.files: found data that needs a vocabulary of {}, but the run's model has one of {}; "
        "give data of the run's tokenizer",
        wish.vocab, newest.vocab);
  if (!newest.tokenizer.empty() && !wish.tokenizer.empty() && newest.tokenizer != wish.tokenizer)
    return fmt::format(
        "data.files: found data of the tokenizer {}, but the run began with that of {}; prepare it "
        "with the run's tokenizer",
        wish.tokenizer, newest.tokenizer);
  return std::nullopt;
}

}  // namespace swarmline
