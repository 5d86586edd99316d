// What `status --json` and the live screen show; the members are listed in docs/formats/status.md.
#include "engine/store/json_writer.h"
#include "pipeline/coordinator/coordinator_impl.h"

namespace swarmline {

namespace {

constexpr int kStatusFormat = 1;

const char* name_of(MemberState state) {
  switch (state) {
    case MemberState::kBuilding:
      return "building";
    case MemberState::kFollowing:
      return "joining";
    case MemberState::kReady:
      return "ready";
    case MemberState::kAway:
      return "away";
    case MemberState::kLost:
      return "lost";
  }
  return "?";
}

void write_way(JsonWriter& json, const std::string& way, const BoundaryBoard::View& view) {
  json.member(way + "_codec", to_string(view.codec));
  json.key(way + "_error");
  view.relative_error < 0 ? json.null() : json.value(view.relative_error);
  json.member(way + "_bytes_per_second", view.bytes_per_second);
}

void write_boundary(JsonWriter& json, std::size_t from, const BoundaryTotals& totals,
                    const BoundaryBoard& board) {
  json.begin_object();
  json.member("from", from).member("to", from + 1);
  json.member("forward_codec_bytes", totals.forward_codec);
  json.member("forward_token_bytes", totals.forward_tokens);
  json.member("forward_framing_bytes", totals.forward_framing);
  json.member("backward_codec_bytes", totals.backward_codec);
  json.member("backward_framing_bytes", totals.backward_framing);
  json.member("microbatches", totals.forward_messages);
  json.member("gradients", totals.backward_messages);
  const auto boundary = static_cast<std::uint32_t>(from);
  write_way(json, "forward", board.view(boundary, BoundaryBoard::kForward));
  write_way(json, "backward", board.view(boundary, BoundaryBoard::kBackward));
  json.end_object();
}

}  // namespace

std::string Coordinator::Impl::status_json() const {
  static constexpr const char* kStates[] = {"waiting", "training", "draining",  "checkpointing",
                                            "done",    "failed",   "collecting"};
  const RunConfig& config = options_.config;
  const Instant now = runtime_.now();
  const double elapsed = stats_.elapsed_seconds(now);
  std::uint64_t in_flight = 0;
  for (const auto& [peer, member] : membership_.members())
    if (member.seat.stage.value == 0) in_flight += member.in_flight;
  JsonWriter json;
  json.begin_object();
  json.member("format", kStatusFormat);
  json.member("run", config.run.name);
  json.member("state", sequence_.open_evals() > 0 && state_ == State::kTraining
                           ? "evaluating"
                           : kStates[static_cast<int>(state_)]);
  json.member("sentence", sentence_);
  json.member("step", sequence_.committed()).member("steps", config.run.steps);
  json.member("version", sequence_.committed());
  json.member("era", era_.value).member("era_sentence", era_sentence_);
  json.key("loss");
  stats_.losses().empty() ? json.null() : json.value(stats_.last_loss());
  json.key("held_out_loss");
  stats_.held_out_loss() < 0 ? json.null() : json.value(stats_.held_out_loss());
  json.member("unigram_entropy", options_.unigram_entropy);
  json.member("bigram_entropy", options_.bigram_entropy);
  json.member("tokens", sequence_.committed() * config.tokens_per_step());
  json.member("tokens_per_second", stats_.tokens_per_second());
  json.member("mean_tokens_per_second", stats_.mean_tokens_per_second());
  const auto left = static_cast<double>(config.run.steps - sequence_.committed());
  json.member("eta_seconds", left * stats_.seconds_per_step());
  json.member("elapsed_seconds", elapsed);
  json.member("in_flight", in_flight);
  json.key("stages").begin_array();
  for (const StageSpec& stage : shape_.stages) {
    json.begin_object();
    json.member("stage", stage.stage.value);
    json.member("first_layer", stage.first_layer).member("last_layer", stage.last_layer);
    json.member("wanted", config.pipeline.peers[stage.stage.value]);
    json.key("peers").begin_array();
    std::uint64_t stage_total = 0;
    for (const auto& [peer, member] : membership_.members())
      if (member.seat.stage == stage.stage) stage_total += member.contributions;
    for (const auto& [peer, member] : membership_.members()) {
      if (member.seat.stage != stage.stage) continue;
      json.begin_object();
      json.member("peer", peer.value).member("name", member.name).member("address", member.address);
      json.member("state", name_of(member.state));
      json.member("in_flight", member.in_flight);
      json.member("microbatches", member.contributions);
      json.member("share", stage_total > 0 ? static_cast<double>(member.contributions) /
                                                 static_cast<double>(stage_total)
                                           : 0.0);
      json.member("busy", elapsed > 0 ? static_cast<double>(member.busy_ns) * 1e-9 / elapsed : 0.0);
      json.end_object();
    }
    json.end_array().key("shadows").begin_array();
    for (const Seat& seat : shadows_.of_stage(stage.stage)) {
      const ShadowDesk::Shadow& shadow = shadows_.all().at(seat);
      json.begin_object();
      json.member("peer", seat.peer.value);
      json.member("name", membership_.members().at(seat.peer).name);
      json.member("serves", shadow.host_stage.value);
      json.member("state", shadow.ready ? "ready" : "fetching");
      json.end_object();
    }
    json.end_array().end_object();
  }
  json.end_array();
  json.key("boundaries").begin_array();
  for (std::size_t s = 0; s + 1 < shape_.stages.size(); ++s)
    write_boundary(json, s, stats_.boundaries()[s], boundaries_);
  json.end_array();
  json.member("reduce_bytes", stats_.reduce_bytes());
  json.member("control_bytes", control_bytes());
  json.member("checkpoint_bytes", checkpoint_bytes_);
  json.member("checkpoint", last_checkpoint_);
  json.key("losses").begin_array();
  for (double loss : stats_.losses()) json.value(loss);
  json.end_array();
  json.end_object();
  return json.take();
}

}  // namespace swarmline
