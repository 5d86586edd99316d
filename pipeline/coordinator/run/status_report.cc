// What `status --json` and the live screen show; the members are listed in docs/formats/status.md.
#include "pipeline/coordinator/run/status_report.h"

#include <algorithm>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "base/printable.h"

namespace swarmline {

namespace {

constexpr std::size_t kEventBytesMax = 400;                 // of its sentence
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

std::optional<double> if_measured(double error) {
  return error < 0 ? std::nullopt : std::optional(error);
}

BoundaryStatus boundary_of(std::uint32_t from, const BoundaryTotals& totals,
                           const BoundaryBoard& board) {
  const BoundaryBoard::View forward = board.view(from, BoundaryBoard::kForward);
  const BoundaryBoard::View backward = board.view(from, BoundaryBoard::kBackward);
  return {.from = from,
          .to = from + 1,
          .forward_codec_bytes = totals.forward_codec,
          .forward_token_bytes = totals.forward_tokens,
          .forward_framing_bytes = totals.forward_framing,
          .backward_codec_bytes = totals.backward_codec,
          .backward_framing_bytes = totals.backward_framing,
          .microbatches = totals.forward_messages,
          .gradients = totals.backward_messages,
          .forward_codec = to_string(forward.codec),
          .backward_codec = to_string(backward.codec),
          .forward_error = if_measured(forward.relative_error),
          .backward_error = if_measured(backward.relative_error),
          .forward_bytes_per_second = forward.bytes_per_second,
          .backward_bytes_per_second = backward.bytes_per_second};
}

std::string data_sentence(const Member& member) {
  if (!member.fetched || member.state == MemberState::kLost) return {};
  const DataFetched& data = *member.fetched;
  const std::string from =
      data.from.value == 0 ? "" : fmt::format(" from peer {}", data.from.value);
  return fmt::format("fetches its data{}: {} of {} pieces", from, data.pieces, data.of);
}

StageStatus stage_of(const StageSpec& spec, const StatusSources& run, double elapsed) {
  StageStatus stage{.stage = spec.stage.value,
                    .first_layer = spec.first_layer,
                    .last_layer = spec.last_layer,
                    .wanted = run.shape.config.pipeline.peers[spec.stage.value],
                    .peers = {},
                    .shadows = {}};
  double contributions = 0;
  for (const auto& [peer, member] : run.members.members())
    if (member.seat.stage == spec.stage) contributions += static_cast<double>(member.contributions);
  for (const auto& [peer, member] : run.members.members()) {
    if (member.seat.stage != spec.stage) continue;
    const auto own = static_cast<double>(member.contributions);
    stage.peers.push_back(
        {.peer = peer.value,
         .name = member.name,
         .address = member.address,
         .state = name_of(member.state),
         .reach = std::string(to_string(member.reach)),
         .share = contributions > 0 ? own / contributions : 0,
         .busy = elapsed > 0 ? static_cast<double>(member.busy_ns) * 1e-9 / elapsed : 0,
         .in_flight = member.in_flight,
         .microbatches = member.contributions,
         .relayed_links = member.relayed_links,
         .relayed_bytes = member.relayed_bytes,
         .data = data_sentence(member),
         .moves_to = {},
         .barred = {}});
  }
  for (const Seat& seat : run.shadows.of_stage(spec.stage)) {
    const ShadowDesk::Shadow& shadow = run.shadows.all().at(seat);
    stage.shadows.push_back({.peer = seat.peer.value,
                             .name = run.members.members().at(seat.peer).name,
                             .serves = shadow.host_stage.value,
                             .state = shadow.ready ? "ready" : "fetching"});
  }
  return stage;
}

// What `swarmline plan` plans with: the same as the run's own balancer.
void add_balance(const StatusSources& run, Instant now, RunStatus& status) {
  const ShadowsPerStage& shadows = run.shape.config.balance.shadows;
  status.balance_moves = run.balancer.moves();
  if (!shadows.automatic) status.balance_shadows = shadows.count;
  const PlanSnapshot seen = run.balancer.snapshot(run.members, run.shadows, now);
  std::map<std::uint64_t, const PlanPeer*> facts;
  for (const PlanPeer& peer : seen.peers) facts[peer.peer.value] = &peer;
  for (StageStatus& stage : status.stages) {
    stage.cost = seen.stages[stage.stage].cost;
    stage.state_bytes = seen.stages[stage.stage].state_bytes;
    for (PeerStatus& peer : stage.peers) {
      const auto found = facts.find(peer.peer);
      if (found == facts.end()) continue;
      const PlanPeer& known = *found->second;
      peer.speed = known.speed;
      peer.arriving = known.arriving;
      if (known.stage && known.stage->value != stage.stage) peer.moves_to = known.stage->value;
      if (known.barred) peer.barred = known.barred->value;
      peer.memory_bytes = known.memory_bytes;
      peer.shadow_memory_bytes = known.shadow_memory_bytes;
      peer.slow_seconds = known.slow_seconds;
    }
  }
}

std::string state_of(const StatusSources& run) {
  const bool evaluates = run.sequence.open_evals() > 0 && run.life.is<life::Training>();
  return evaluates ? "evaluating" : std::string(run.life.shown());
}

std::string journal_sentence(const JournalWriter& writer, Instant now) {
  if (const auto& trouble = writer.trouble())
    return fmt::format(
        "the journal could not be written for {:.0f} s, and is tried again; commits wait: {}",
        to_seconds(now - trouble->since), trouble->why);
  if (const Duration wait = writer.wait(now); wait > kJournalSlow)
    return fmt::format("the journal has not answered for {:.0f} s; commits wait", to_seconds(wait));
  return {};
}

}  // namespace

RunStatus status_of(const StatusSources& run, const std::string& era_sentence, Instant now) {
  const RunConfig& config = run.shape.config;
  const std::uint64_t committed = run.sequence.committed();
  const auto left = static_cast<double>(config.run.steps - committed);
  const std::uint64_t bytes = run.sessions.bytes();
  RunStatus status;
  status.run = config.run.name;
  status.state = state_of(run);
  status.sentence = run.life.sentence();
  status.step = status.version = committed;
  status.steps = config.run.steps;
  status.era = run.identity.era.value;
  status.era_sentence = era_sentence;
  status.journal = journal_sentence(run.writer, now);
  status.refused = run.refusals.newest();
  status.wall_seconds = run.events.wall_seconds();
  for (const EventRecord& event : run.events.newest())
    status.events.push_back({.wall_seconds = event.wall_seconds,
                             .kind = event.kind,
                             .detail = printable(event.detail, kEventBytesMax)});
  if (!run.stats.losses().empty()) status.loss = run.stats.last_loss();
  if (run.stats.held_out_loss() >= 0) status.held_out_loss = run.stats.held_out_loss();
  status.unigram_entropy = run.shape.options.unigram_entropy;
  status.bigram_entropy = run.shape.options.bigram_entropy;
  status.tokens = committed * config.tokens_per_step();
  status.tokens_per_second = run.stats.tokens_per_second();
  status.mean_tokens_per_second = run.stats.mean_tokens_per_second();
  status.eta_seconds = left * run.stats.seconds_per_step();
  status.elapsed_seconds = run.stats.elapsed_seconds(now);
  for (const auto& [peer, member] : run.members.members())
    if (member.seat.stage.value == 0) status.in_flight += member.in_flight;
  for (const StageSpec& stage : run.shape.stages)
    status.stages.push_back(stage_of(stage, run, status.elapsed_seconds));
  add_balance(run, now, status);
  for (std::uint32_t from = 0; from + 1 < run.shape.stage_count(); ++from)
    status.boundaries.push_back(boundary_of(from, run.stats.boundaries()[from], run.boundaries));
  for (const RelayDesk::Relay& relay : run.relays.relays())
    status.relays.push_back(
        {.name = relay.name, .address = relay.address, .links = relay.links, .bytes = relay.bytes});
  status.reduce_bytes = run.stats.reduce_bytes();
  status.checkpoint_bytes = run.checkpointer.bytes();
  status.second_tries = run.stats.second_tries();
  status.control_bytes = bytes - std::min(bytes, status.checkpoint_bytes);
  status.checkpoint = run.checkpointer.last();
  status.losses.assign(run.stats.losses().begin(), run.stats.losses().end());
  return status;
}

}  // namespace swarmline
