#include "engine/store/log_reader.h"

#include <utility>

#include "engine/store/json_value.h"
#include "engine/store/log_lines.h"

namespace swarmline {
namespace {

constexpr std::uint64_t kStepsFromZero = 1;  // the format that counts them so

LoggedStep step_of(const JsonValue& line) {
  LoggedStep step;
  const std::uint64_t number = line["step"].count();
  step.step = line["format"].count() > kStepsFromZero && number > 0 ? number - 1 : number;
  if (line["loss"].is_number()) step.loss = line["loss"].number;
  step.tokens = line["tokens"].count();
  step.seconds = line["seconds"].number_or(0);
  step.wall_seconds = line["wall_seconds"].number_or(0);
  step.gradient_norm = line["gradient_norm"].number_or(0);
  step.learning_rate = line["learning_rate"].number_or(0);
  step.averaging_bytes = line["averaging_bytes"].count();
  step.second_tries = line["second_tries"].count();
  for (const JsonValue& boundary : line["boundaries"].items)
    step.boundary_bytes += boundary["forward_bytes"].count() + boundary["backward_bytes"].count();
  for (const JsonValue& peer : line["peers"].items)
    step.peers.push_back({.peer = peer["peer"].count(),
                          .name = peer["name"].string,
                          .stage = peer["stage"].count(),
                          .microbatches = peer["microbatches"].count(),
                          .busy_seconds = peer["busy_seconds"].number_or(0)});
  return step;
}

LoggedEval eval_of(const JsonValue& line) {
  return {.version = line["version"].count(),
          .loss = line["loss"].number,
          .wall_seconds = line["wall_seconds"].number_or(0)};
}

}  // namespace

std::optional<LogEntry> read_log_line(std::string_view text) {
  if (text.size() > kLogLineBytesMax) return std::nullopt;
  const auto line = parse_json(text);
  const std::uint64_t format = line ? (*line)["format"].count() : 0;
  if (format == 0 || format > kLogFormat) return std::nullopt;
  const std::string& kind = (*line)["kind"].string;
  if (kind == "step") return step_of(*line);
  if (kind == "eval" && (*line)["loss"].is_number()) return eval_of(*line);
  return LoggedEvent{.kind = kind,
                     .detail = (*line)["detail"].string,
                     .wall_seconds = (*line)["wall_seconds"].number_or(0),
                     .level = (*line)["level"].string};
}

}  // namespace swarmline
