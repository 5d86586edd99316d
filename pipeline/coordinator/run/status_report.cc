// What `status --json` and the live screen show; the members are listed in docs/formats/status.md.
#include "pipeline/coordinator/run/status_report.h"

#include <fmt/format.h>

#include "engine/store/json_writer.h"
#include "pipeline/coordinator/members/membership.h"
#include "pipeline/coordinator/run/run_stats.h"
#include "pipeline/coordinator/steps/boundary_board.h"

namespace swarmline {

namespace {

constexpr int kStatusFormat = 1;
constexpr Duration kJournalSlow = std::chrono::seconds(2);  // people need not know of less

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

std::uint64_t control_bytes(const CoordinatorParts& parts) {
  const std::uint64_t bytes = parts.sessions.bytes();
  return bytes - std::min(bytes, parts.checkpointer.bytes());
}

std::string journal_sentence(const CoordinatorParts& parts, Instant now) {
  if (const auto& trouble = parts.writer.trouble())
    return fmt::format(
        "the journal could not be written for {:.0f} s, and is tried again; commits wait: {}",
        to_seconds(now - trouble->since), trouble->why);
  if (const Duration wait = parts.writer.wait(now); wait > kJournalSlow)
    return fmt::format("the journal has not answered for {:.0f} s; commits wait", to_seconds(wait));
  return {};
}

}  // namespace

std::string coordinator_status_json(const CoordinatorParts& parts,
                                    const std::string& era_sentence) {
  const RunConfig& config = parts.shape.config;
  const Instant now = parts.alarms.now();
  const double elapsed = parts.stats.elapsed_seconds(now);
  std::uint64_t in_flight = 0;
  for (const auto& [peer, member] : parts.members.members())
    if (member.seat.stage.value == 0) in_flight += member.in_flight;
  JsonWriter json;
  json.begin_object();
  json.member("format", kStatusFormat);
  json.member("run", config.run.name);
  json.member("state", parts.sequence.open_evals() > 0 && parts.life.is<life::Training>()
                           ? "evaluating"
                           : std::string(parts.life.shown()));
  json.member("sentence", parts.life.sentence());
  json.member("step", parts.sequence.committed()).member("steps", config.run.steps);
  json.member("version", parts.sequence.committed());
  json.member("era", parts.identity.era.value).member("era_sentence", era_sentence);
  json.member("journal", journal_sentence(parts, now));
  json.key("loss");
  parts.stats.losses().empty() ? json.null() : json.value(parts.stats.last_loss());
  json.key("held_out_loss");
  parts.stats.held_out_loss() < 0 ? json.null() : json.value(parts.stats.held_out_loss());
  json.member("unigram_entropy", parts.shape.options.unigram_entropy);
  json.member("bigram_entropy", parts.shape.options.bigram_entropy);
  json.member("tokens", parts.sequence.committed() * config.tokens_per_step());
  json.member("tokens_per_second", parts.stats.tokens_per_second());
  json.member("mean_tokens_per_second", parts.stats.mean_tokens_per_second());
  const auto left = static_cast<double>(config.run.steps - parts.sequence.committed());
  json.member("eta_seconds", left * parts.stats.seconds_per_step());
  json.member("elapsed_seconds", elapsed);
  json.member("in_flight", in_flight);
  json.key("stages").begin_array();
  for (const StageSpec& stage : parts.shape.stages) {
    json.begin_object();
    json.member("stage", stage.stage.value);
    json.member("first_layer", stage.first_layer).member("last_layer", stage.last_layer);
    json.member("wanted", config.pipeline.peers[stage.stage.value]);
    json.key("peers").begin_array();
    std::uint64_t stage_total = 0;
    for (const auto& [peer, member] : parts.members.members())
      if (member.seat.stage == stage.stage) stage_total += member.contributions;
    for (const auto& [peer, member] : parts.members.members()) {
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
    for (const Seat& seat : parts.shadows.of_stage(stage.stage)) {
      const ShadowDesk::Shadow& shadow = parts.shadows.all().at(seat);
      json.begin_object();
      json.member("peer", seat.peer.value);
      json.member("name", parts.members.members().at(seat.peer).name);
      json.member("serves", shadow.host_stage.value);
      json.member("state", shadow.ready ? "ready" : "fetching");
      json.end_object();
    }
    json.end_array().end_object();
  }
  json.end_array();
  json.key("boundaries").begin_array();
  for (std::size_t s = 0; s + 1 < parts.shape.stages.size(); ++s)
    write_boundary(json, s, parts.stats.boundaries()[s], parts.boundaries);
  json.end_array();
  json.member("reduce_bytes", parts.stats.reduce_bytes());
  json.member("control_bytes", control_bytes(parts));
  json.member("checkpoint_bytes", parts.checkpointer.bytes());
  json.member("checkpoint", parts.checkpointer.last());
  json.key("losses").begin_array();
  for (double loss : parts.stats.losses()) json.value(loss);
  json.end_array();
  json.end_object();
  return json.take();
}

}  // namespace swarmline
