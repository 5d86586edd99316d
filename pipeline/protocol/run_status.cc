#include "pipeline/protocol/run_status.h"

#include <utility>

#include <fmt/format.h>

#include "engine/store/json_value.h"
#include "engine/store/json_writer.h"

namespace swarmline {
namespace {

std::optional<double> number(const JsonValue& value) {
  return value.is_number() ? std::optional(value.number) : std::nullopt;
}

StageStatus stage_from(const JsonValue& json) {
  StageStatus stage{.stage = json["stage"].count(),
                    .first_layer = json["first_layer"].count(),
                    .last_layer = json["last_layer"].count(),
                    .wanted = json["wanted"].count(),
                    .peers = {},
                    .shadows = {}};
  for (const JsonValue& peer : json["peers"].items) {
    stage.peers.push_back({.peer = peer["peer"].count(),
                           .name = peer["name"].string,
                           .address = peer["address"].string,
                           .state = peer["state"].string,
                           .share = peer["share"].number_or(0),
                           .busy = peer["busy"].number_or(0),
                           .in_flight = peer["in_flight"].count(),
                           .microbatches = peer["microbatches"].count()});
  }
  for (const JsonValue& shadow : json["shadows"].items)
    stage.shadows.push_back({.peer = shadow["peer"].count(),
                             .name = shadow["name"].string,
                             .serves = shadow["serves"].count(),
                             .state = shadow["state"].string});
  return stage;
}

BoundaryStatus boundary_from(const JsonValue& json) {
  return {.from = json["from"].count(),
          .to = json["to"].count(),
          .forward_codec_bytes = json["forward_codec_bytes"].count(),
          .forward_token_bytes = json["forward_token_bytes"].count(),
          .forward_framing_bytes = json["forward_framing_bytes"].count(),
          .backward_codec_bytes = json["backward_codec_bytes"].count(),
          .backward_framing_bytes = json["backward_framing_bytes"].count(),
          .microbatches = json["microbatches"].count(),
          .gradients = json["gradients"].count(),
          .forward_codec = json["forward_codec"].string,
          .backward_codec = json["backward_codec"].string,
          .forward_error = number(json["forward_error"]),
          .backward_error = number(json["backward_error"]),
          .forward_bytes_per_second = json["forward_bytes_per_second"].number_or(0),
          .backward_bytes_per_second = json["backward_bytes_per_second"].number_or(0)};
}

// An entropy of 0: not measured, because nothing is held out.
std::optional<double> entropy(const JsonValue& value) {
  return value.number_or(0) > 0 ? std::optional(value.number) : std::nullopt;
}

}  // namespace

std::size_t RunStatus::peers() const {
  std::size_t sum = 0;
  for (const StageStatus& stage : stages) sum += stage.peers.size();
  return sum;
}

Result<RunStatus> parse_status(std::string_view text) {
  auto parsed = parse_json(text);
  if (!parsed) {
    return fail(ErrorCode::kCorrupt, "the run's status is " + parsed.error().what);
  }
  const JsonValue& json = *parsed;
  if (const std::uint64_t format = json["format"].count(); format != kStatusFormat) {
    return fail(ErrorCode::kIncompatible,
                fmt::format("the run's status has format {}, this program reads {}; use the "
                            "program that the run uses",
                            format, kStatusFormat));
  }
  RunStatus status{.run = json["run"].string,
                   .state = json["state"].string,
                   .sentence = json["sentence"].string,
                   .step = json["step"].count(),
                   .steps = json["steps"].count(),
                   .version = json["version"].count(),
                   .era = json["era"].count(),
                   .era_sentence = json["era_sentence"].string,
                   .journal = json["journal"].string,
                   .loss = number(json["loss"]),
                   .held_out_loss = number(json["held_out_loss"]),
                   .unigram_entropy = entropy(json["unigram_entropy"]),
                   .bigram_entropy = entropy(json["bigram_entropy"]),
                   .tokens = json["tokens"].count(),
                   .tokens_per_second = number(json["tokens_per_second"]),
                   .mean_tokens_per_second = number(json["mean_tokens_per_second"]),
                   .eta_seconds = number(json["eta_seconds"]),
                   .elapsed_seconds = json["elapsed_seconds"].number_or(0),
                   .in_flight = json["in_flight"].count(),
                   .stages = {},
                   .boundaries = {},
                   .reduce_bytes = json["reduce_bytes"].count(),
                   .control_bytes = json["control_bytes"].count(),
                   .checkpoint_bytes = json["checkpoint_bytes"].count(),
                   .checkpoint = json["checkpoint"].string,
                   .losses = {}};
  for (const JsonValue& stage : json["stages"].items) status.stages.push_back(stage_from(stage));
  for (const JsonValue& boundary : json["boundaries"].items) {
    status.boundaries.push_back(boundary_from(boundary));
  }
  for (const JsonValue& loss : json["losses"].items) {
    if (loss.is_number()) status.losses.push_back(loss.number);
  }
  return status;
}

namespace {

void write_stage(JsonWriter& json, const StageStatus& stage) {
  json.begin_object()
      .member("stage", stage.stage)
      .member("first_layer", stage.first_layer)
      .member("last_layer", stage.last_layer)
      .member("wanted", stage.wanted);
  json.key("peers").begin_array();
  for (const PeerStatus& peer : stage.peers) {
    json.begin_object()
        .member("peer", peer.peer)
        .member("name", peer.name)
        .member("address", peer.address)
        .member("state", peer.state)
        .member("in_flight", peer.in_flight)
        .member("microbatches", peer.microbatches)
        .member("share", peer.share)
        .member("busy", peer.busy)
        .end_object();
  }
  json.end_array().key("shadows").begin_array();
  for (const ShadowStatus& shadow : stage.shadows)
    json.begin_object()
        .member("peer", shadow.peer)
        .member("name", shadow.name)
        .member("serves", shadow.serves)
        .member("state", shadow.state)
        .end_object();
  json.end_array().end_object();
}

void write_boundary(JsonWriter& json, const BoundaryStatus& boundary) {
  json.begin_object()
      .member("from", boundary.from)
      .member("to", boundary.to)
      .member("forward_codec_bytes", boundary.forward_codec_bytes)
      .member("forward_token_bytes", boundary.forward_token_bytes)
      .member("forward_framing_bytes", boundary.forward_framing_bytes)
      .member("backward_codec_bytes", boundary.backward_codec_bytes)
      .member("backward_framing_bytes", boundary.backward_framing_bytes)
      .member("microbatches", boundary.microbatches)
      .member("gradients", boundary.gradients);
  json.member("forward_codec", boundary.forward_codec);
  json.member("forward_error", boundary.forward_error);
  json.member("forward_bytes_per_second", boundary.forward_bytes_per_second);
  json.member("backward_codec", boundary.backward_codec);
  json.member("backward_error", boundary.backward_error);
  json.member("backward_bytes_per_second", boundary.backward_bytes_per_second);
  json.end_object();
}

}  // namespace

std::string to_json(const RunStatus& status) {
  JsonWriter json;
  json.begin_object()
      .member("format", kStatusFormat)
      .member("run", status.run)
      .member("state", status.state)
      .member("sentence", status.sentence)
      .member("step", status.step)
      .member("steps", status.steps)
      .member("version", status.version)
      .member("era", status.era)
      .member("era_sentence", status.era_sentence)
      .member("journal", status.journal);
  json.member("loss", status.loss);
  json.member("held_out_loss", status.held_out_loss);
  json.member("unigram_entropy", status.unigram_entropy);
  json.member("bigram_entropy", status.bigram_entropy);
  json.member("tokens", status.tokens);
  json.member("tokens_per_second", status.tokens_per_second);
  json.member("mean_tokens_per_second", status.mean_tokens_per_second);
  json.member("eta_seconds", status.eta_seconds);
  json.member("elapsed_seconds", status.elapsed_seconds).member("in_flight", status.in_flight);
  json.key("stages").begin_array();
  for (const StageStatus& stage : status.stages) write_stage(json, stage);
  json.end_array().key("boundaries").begin_array();
  for (const BoundaryStatus& boundary : status.boundaries) write_boundary(json, boundary);
  json.end_array()
      .member("reduce_bytes", status.reduce_bytes)
      .member("control_bytes", status.control_bytes)
      .member("checkpoint_bytes", status.checkpoint_bytes)
      .member("checkpoint", status.checkpoint);
  json.key("losses").begin_array();
  for (const double loss : status.losses) json.value(loss);
  json.end_array().end_object();
  return json.take();
}

}  // namespace swarmline
