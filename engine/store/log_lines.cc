#include "engine/store/log_lines.h"

#include "engine/store/json_writer.h"

namespace swarmline {

namespace {

void begin_line(JsonWriter& json, std::string_view kind, double wall_seconds) {
  json.begin_object().member("format", kLogFormat).member("kind", kind);
  json.member("wall_seconds", wall_seconds);
}

// Null where nothing was measured; the writer makes null of what is not finite.
void write_error(JsonWriter& json, std::string_view key, double error) {
  json.key(key);
  error < 0 ? json.null() : json.value(error);
}

}  // namespace

std::string to_json_line(const StepLogLine& line) {
  JsonWriter json;
  begin_line(json, "step", line.wall_seconds);
  json.member("step", line.step + 1).member("version", line.version).member("loss", line.loss);
  json.member("tokens", line.tokens).member("seconds", line.seconds);
  json.member("gradient_norm", line.gradient_norm).member("learning_rate", line.learning_rate);
  json.member("skipped", line.skipped);
  json.key("peers").begin_array();
  for (const PeerContributions& share : line.peers) {
    json.begin_object().member("peer", share.peer.value).member("name", share.name);
    json.member("stage", share.stage.value);
    json.member("microbatches", share.microbatches);
    json.member("busy_seconds", share.busy_seconds).end_object();
  }
  json.end_array().key("boundaries").begin_array();
  for (const BoundaryBytes& boundary : line.boundaries) {
    json.begin_object().member("from", boundary.from.value);
    json.member("forward_bytes", boundary.forward_bytes);
    json.member("backward_bytes", boundary.backward_bytes);
    json.member("forward_codec", boundary.forward_codec);
    json.member("backward_codec", boundary.backward_codec);
    write_error(json, "forward_error", boundary.forward_error);
    write_error(json, "backward_error", boundary.backward_error);
    json.end_object();
  }
  json.end_array().member("averaging_bytes", line.averaging_bytes);
  json.member("second_tries", line.second_tries);
  if (line.cost) json.member("cost", *line.cost);
  json.end_object();
  return json.take();
}

std::string to_json_line(const EvalLogLine& line) {
  JsonWriter json;
  begin_line(json, "eval", line.wall_seconds);
  json.member("version", line.version).member("loss", line.loss);
  json.member("sequences", line.sequences).member("tokens", line.tokens).end_object();
  return json.take();
}

LogPoint point_of(const StepLogLine& line) {
  LogPoint point{.step = line.step + 1,
                 .is_step = true,
                 .wall_seconds = line.wall_seconds,
                 .values = {{"loss/train", line.loss},
                            {"optimizer/learning_rate", line.learning_rate},
                            {"optimizer/gradient_norm", line.gradient_norm},
                            {"swarm/peers", static_cast<double>(line.peers.size())}}};
  if (line.seconds > 0)
    point.values.emplace_back("speed/tokens_per_second",
                              static_cast<double>(line.tokens) / line.seconds);
  return point;
}

LogPoint point_of(const EvalLogLine& line) {
  return {.step = line.version,
          .is_step = false,
          .wall_seconds = line.wall_seconds,
          .values = {{"loss/held_out", line.loss}}};
}

std::string to_json_line(const EventLogLine& line) {
  JsonWriter json;
  begin_line(json, line.kind, line.wall_seconds);
  json.member("level", to_string(line.level)).member("detail", line.detail);
  if (line.subject) {
    json.member("peer", line.subject->seat.peer.value).member("name", line.subject->name);
    json.member("stage", line.subject->seat.stage.value);
    json.member("incarnation", line.subject->seat.incarnation.value);
  }
  json.end_object();
  return json.take();
}

}  // namespace swarmline
