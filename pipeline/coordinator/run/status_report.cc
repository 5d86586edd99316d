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
constexpr std::size_t kStagesNamed = 3;                     // in a sentence
constexpr Duration kJournalSlow = std::chrono::seconds(2);  // people need not know of less

const char* name_of(MemberState state) {
  switch (state) {
    case MemberState::kBuilding:
      return "building";
    case MemberState::kFollowing:
    case MemberState::kEarly:
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

std::string data_sentence(const Member& member, const EventLog& events) {
  if (!member.fetched || member.state == MemberState::kLost) return {};
  const DataFetched& data = *member.fetched;
  const std::string from = data.from.value == 0 ? "" : " from " + events.who(data.from);
  return fmt::format("fetches its data{}: {} of {} pieces", from, data.pieces, data.of);
}

PeerStatus peer_of(const Member& member, const EventLog& events) {
  return {.peer = member.seat.peer.value,
          .name = member.name,
          .address = member.address,
          .state = name_of(member.state),
          .reach = std::string(to_string(member.reach)),
          .in_flight = member.in_flight,
          .microbatches = member.contributions,
          .seconds_per_microbatch = member.seconds_per_microbatch,
          .relayed_links = member.relayed_links,
          .relayed_bytes = member.relayed_bytes,
          .data = data_sentence(member, events),
          .moves_to = {},
          .barred = {},
          .zone = member.at.zone,
          .host = member.at.host};
}

StageStatus stage_of(const StageSpec& spec, const StatusSources& run) {
  StageStatus stage{.stage = spec.stage.value,
                    .first_layer = spec.first_layer,
                    .last_layer = spec.last_layer,
                    .wanted = run.shape.config.pipeline.peers[spec.stage.value],
                    .peers = {},
                    .shadows = {}};
  const std::vector<PeerId> missed = run.members.missed_at(spec.stage);
  const std::map<PeerId, RunStats::Work> work = run.stats.work_at(spec.stage);
  double microbatches = 0;  // of those that are there
  for (const auto& [peer, member] : run.members.members()) {
    if (member.seat.stage != spec.stage) continue;
    const bool lost = member.state == MemberState::kLost;
    if (lost && std::ranges::find(missed, peer) == missed.end()) continue;
    PeerStatus& shown = stage.peers.emplace_back(peer_of(member, run.events));
    const auto done = work.find(peer);
    if (lost || done == work.end()) continue;
    shown.busy = done->second.busy;
    shown.share = static_cast<double>(done->second.microbatches);
    microbatches += shown.share;
  }
  for (PeerStatus& peer : stage.peers)
    peer.share = microbatches > 0 ? peer.share / microbatches : 0;
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

// Stages whose state one peer alone holds, and where the run would go back to without it.
std::string unprotected_sentence(const StatusSources& run) {
  if (!run.life.is<life::Training>()) return {};
  std::string alone;
  std::size_t stages = 0;
  for (const StageSpec& spec : run.shape.stages) {
    const std::vector<Seat> seats = run.members.ready_of(spec.stage);
    if (seats.size() != 1 || !run.shadows.ready_of(spec.stage).empty()) continue;
    if (++stages <= kStagesNamed)
      alone += fmt::format("{}{} of stage {}", alone.empty() ? "" : ", ",
                           run.members.name_of(seats.front().peer), spec.stage.value);
  }
  if (stages == 0) return {};
  if (stages > kStagesNamed) alone += fmt::format(" and {} more", stages - kStagesNamed);
  const std::string& saved = run.checkpointer.last();
  return fmt::format("{}: nobody else holds its state; if it is lost, the run goes back to {}",
                     alone, saved.empty() ? "its beginning" : saved);
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

// Of the steps after `since`, on average: segments may have other batches.
double tokens_per_step(const StatusSources& run, std::uint64_t since, std::uint64_t version) {
  if (version <= since) return static_cast<double>(run.shape.config.tokens_per_step());
  return static_cast<double>(trained_tokens(run, version) - trained_tokens(run, since)) /
         static_cast<double>(version - since);
}

}  // namespace

std::uint64_t trained_tokens(const StatusSources& run, std::uint64_t version) {
  if (run.segments.empty()) return version * run.shape.config.tokens_per_step();
  return tokens_until(in_force(run.segments), version);
}

RunTotals run_totals(const StatusSources& run) {
  const std::uint64_t bytes = run.sessions.bytes(), of_checkpoints = run.checkpointer.bytes();
  RunTotals totals = run.stats.totals_with(bytes - std::min(bytes, of_checkpoints), of_checkpoints);
  totals.cost = run.cost.is_known() ? std::optional(run.cost.totals()) : std::nullopt;
  return totals;
}

RunStatus status_of(const StatusSources& run, const std::string& era_sentence, Instant now) {
  const RunConfig& config = run.shape.config;
  const std::uint64_t committed = run.sequence.committed();
  const auto left = static_cast<double>(config.run.steps - committed);
  RunStatus status;
  status.run = config.run.name;
  status.state = state_of(run);
  status.sentence = run.life.sentence();
  status.step = status.version = committed;
  status.steps = config.run.steps;
  status.era = run.identity.era.value;
  status.era_sentence = era_sentence;
  if (!run.segments.empty()) status.segment = run.segments.back().number;
  if (status.segment > 1)
    status.segment_sentence = printable(sentence_of(run.segments.back()), kEventBytesMax);
  status.journal = journal_sentence(run.writer, now);
  status.refused = run.refusals.newest();
  if (!status.over()) status.page = run.shape.options.page;
  status.unprotected = unprotected_sentence(run);
  status.wall_seconds = run.events.wall_seconds();
  for (const EventRecord& event : run.events.newest())
    status.events.push_back({.wall_seconds = event.wall_seconds,
                             .kind = event.kind,
                             .detail = printable(event.detail, kEventBytesMax),
                             .level = std::string(to_string(event.level))});
  const RunTotals totals = run_totals(run);
  status.loss = run.stats.last_loss();
  status.held_out_loss = totals.held_out_loss;
  status.unigram_entropy = run.shape.options.unigram_entropy;
  status.bigram_entropy = run.shape.options.bigram_entropy;
  status.tokens = trained_tokens(run, committed);
  status.tokens_per_second = run.stats.tokens_per_second();
  status.mean_tokens_per_second = run.stats.mean_tokens_per_second(
      committed, tokens_per_step(run, totals.since_version, committed));
  if (const double seconds = run.stats.seconds_per_step(); seconds > 0)
    status.eta_seconds = left * seconds;
  status.elapsed_seconds = run.life.is_over() ? totals.seconds : run.stats.elapsed_seconds(now);
  status.since_step = totals.since_version;
  for (const auto& [peer, member] : run.members.members())
    if (member.seat.stage.value == 0 && member.state != MemberState::kLost)
      status.in_flight += member.in_flight;
  for (const StageSpec& stage : run.shape.stages) status.stages.push_back(stage_of(stage, run));
  add_balance(run, now, status);
  for (std::uint32_t from = 0; from + 1 < run.shape.stage_count(); ++from)
    status.boundaries.push_back(boundary_of(from, totals.boundaries[from], run.boundaries));
  for (const RelayDesk::Relay& relay : run.relays.relays())
    status.relays.push_back(
        {.name = relay.name, .address = relay.address, .links = relay.links, .bytes = relay.bytes});
  status.reduce_bytes = totals.reduce_bytes;
  status.checkpoint_bytes = totals.checkpoint_bytes;
  status.second_tries = totals.second_tries;
  status.control_bytes = totals.control_bytes;
  status.checkpoint = run.checkpointer.last();
  status.cost = run.cost.status(now, committed,
                                tokens_per_step(run, run.cost.totals().since_version, committed));
  status.losses.assign(totals.losses.begin(), totals.losses.end());
  return status;
}

}  // namespace swarmline
