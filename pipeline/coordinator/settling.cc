// What follows from what was recorded: settle() and what it carries out.
#include "pipeline/coordinator/settling.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/log.h"
#include "base/marks.h"
#include "engine/store/log_lines.h"
#include "pipeline/protocol/message_kinds.h"

namespace swarmline {

void Settling::settle() {
  if (is_settling_) return;
  is_settling_ = true;
  look_at_journal();
  count_cost();
  look_at_budget();
  std::uint32_t rounds = 0;
  while (!parts_.life.is_over() && settle_one()) SWARMLINE_CHECK(++rounds < kRoundsMax);
  forget_long_gone();
  set_rates();
  is_settling_ = false;
  parts_.writer.flush();
  parts_.outbox.flush();
  parts_.events.flush();
  say_farewell();
}

// What can't be written now is decided, and waits; only who doesn't lead any more gives up.
void Settling::look_at_journal() {
  CoordinatorParts& p = parts_;
  const JournalWriter::News news = p.writer.take_news();
  if (news.fails)
    p.events.event_at_once(
        "journal_fails",
        fmt::format("the journal can't be written, and is tried again; commits and seats wait: {}",
                    *news.fails),
        LogLevel::kWarn);
  if (news.well_after)
    p.events.event("journal_well", fmt::format("the journal can be written again, after {:.3g} s",
                                               to_seconds(*news.well_after)));
  if (p.writer.refused()) p.rulings.step_down(p.writer.refused()->what);
}

// The first of the list that is due; false: nothing is.
bool Settling::settle_one() {
  CoordinatorParts& p = parts_;
  if (p.rulings.any()) return carry_out_rulings(), true;
  if (p.recovery.is_due()) return end_recovery(), true;
  if (const auto found = p.beginning.take_found()) return begin_era(*found), true;
  if (p.arrivals.is_due() && !p.writer.is_late(p.alarms.now())) return p.arrivals.admit(), true;
  if (p.life.is<life::Forming>() && p.gathering.is_due()) {
    const bool enough = p.gathering.may_start(p.identity.era.value == 0) && has_data();
    if (p.first_bits.agree(p.beginning.version(), enough) && enough) start_training();
    return true;
  }
  return p.life.is_running() && settle_steps();
}

// Before a start nobody who fetches the data begins without one who has it.
bool Settling::has_data() {
  if (parts_.data_holders.may_start()) return true;
  parts_.data_holders.tell();
  return false;
}

bool Settling::settle_steps() {
  CoordinatorParts& p = parts_;
  if (p.standbys.is_due()) return check_shadows(), true;
  if (p.audit.is_due()) return compare_states(), true;
  if (p.takeovers.is_due()) return p.takeovers.send_candidates(), true;
  if (p.kept_heirs.is_due()) return p.kept_heirs.check(), true;
  if (p.relocation.take_views_changed()) return tell_views(), true;
  if (p.round.is_due()) {
    if (p.round.mend()) commit();
    return true;
  }
  if (std::exchange(progress_, false)) return close_complete_phases(), true;
  if (std::exchange(phases_due_, false)) return open_phases(), true;
  if (p.relocation.is_due()) return p.hand_overs.look(), p.relocation.release_drained(), true;
  if (p.states.is_due()) return p.states.freeze(), true;
  if (moves_peers() && p.relocation.plans_inside_step())
    return p.relocation.plan_inside_step(), true;
  if (p.leases.is_due()) return lease(), true;
  return finish();
}

void Settling::check_shadows() {
  parts_.standbys.check([this](StageId stage) { return parts_.members.count_ready(stage); });
  parts_.takeovers.wake();
}

void Settling::carry_out_rulings() {
  Rulings& rulings = parts_.rulings;
  if (const auto why = rulings.take_step_down()) return step_down(*why);
  if (const auto sentence = rulings.take_failure()) return fail(*sentence);
  if (const auto restart = rulings.take_self_restart()) return restart_itself(*restart);
  for (const SeatLoss& loss : rulings.take_losses()) end_seat(loss);
  for (const SeatLoss& last : rulings.take_gone_stages()) stage_is_gone(last);
  if (const auto why = rulings.take_rollback()) roll_back(*why);
}

// ---- A seat ends --------------------------------------------------------------------------------

// Journaled first, then told to it and to everybody; what it owned in steps not yet reduced is
// missing.
void Settling::end_seat(const SeatLoss& loss) {
  CoordinatorParts& p = parts_;
  if (!p.members.is_current(loss.seat)) return;
  const Member member = p.members.members().at(loss.seat.peer);
  if (p.members.ready_of(loss.seat.stage) == std::vector<Seat>{loss.seat})
    end_early_seats_of(loss.seat.stage);
  const std::optional<ReplicaAudit::Follower> heir = heir_of(loss.seat);
  const bool takes_followed = loss.how == Departure::kMoves && p.takeovers.takes_followed(member);
  // Its welcome may never have reached it: for all that it knows it had no seat.
  const bool not_taken = loss.how == Departure::kLost && !p.life.is<life::Forming>() &&
                         member.state == MemberState::kBuilding &&
                         !p.detector.has_beaten(loss.seat);
  if (not_taken) SWARMLINE_MARK("settling.seat_not_taken");
  p.members.fence(loss.seat);
  p.detector.forget(loss.seat.peer);
  p.journal.record_seat(record_of(member, ends_process(loss.how) ? "left" : "fenced"));
  // Who moves is seated elsewhere soon: it keeps nothing but for a stage whose last peer may die.
  const bool last_but_one = loss.how == Departure::kMoves && !takes_followed &&
                            p.members.count_ready(loss.seat.stage) <= 1;
  const bool keeps = loss.how == Departure::kLost || last_but_one;
  tell_end_of_seat(loss, member,
                   {.keeps = keeps, .takes_followed = takes_followed, .not_taken = not_taken});
  if (member.state == MemberState::kReady && keeps)
    p.kept_heirs.may_keep(loss.seat.peer, loss.seat.stage);
  else if (member.kept && member.kept->version == p.sequence.committed() && !ends_process(loss.how))
    p.kept_heirs.may_keep(loss.seat.peer, member.kept->stage);
  for (RunObserver* observer : p.observers) observer->on_seat_lost(loss);
  if (heir) inherit(*heir);
  after_lost_seat(loss);
}

// One that follows the stage of a last peer and holds what is committed; nobody says that it should
// hold other bits.
std::optional<ReplicaAudit::Follower> Settling::heir_of(const Seat& last) const {
  const CoordinatorParts& p = parts_;
  if (!p.life.is<life::Training>() || p.members.ready_of(last.stage) != std::vector<Seat>{last})
    return std::nullopt;
  const auto heir = p.audit.heir(last.stage, p.sequence.committed());
  return heir && p.members.follows(heir->seat) ? heir : std::nullopt;
}

void Settling::inherit(const ReplicaAudit::Follower& heir) {
  SWARMLINE_MARK("settling.a_joiner_inherits");
  parts_.audit.take_follower(heir.seat);
  take_seat(heir.seat, parts_.sequence.committed());
  parts_.audit.say(heir.seat, parts_.sequence.committed(), heir.digest);
}

void Settling::tell_end_of_seat(const SeatLoss& loss, const Member& member, const Takes& takes) {
  static constexpr const char* kEvents[] = {"peer_lost", "peer_lost", "peer_left", "peer_refused",
                                            "peer_moves"};
  const bool failed = loss.how == Departure::kFailed && parts_.life.is<life::Forming>();
  if (failed || loss.how == Departure::kRefused)
    parts_.refusals.of_a_seat(failed ? "peer_failed" : "peer_refused", member, loss.why);
  else
    parts_.events.of_peer(
        loss.seat, takes.not_taken ? "seat_not_taken" : kEvents[static_cast<int>(loss.how)],
        ": " + loss.why,
        (loss.how == Departure::kLost && !takes.not_taken) || loss.how == Departure::kFailed
            ? LogLevel::kWarn
            : LogLevel::kInfo);
  const SessionPtr session = parts_.sessions.unseat(loss.seat.peer);
  if (!session) return;
  if (ends_process(loss.how)) {
    wire::Shutdown shutdown;
    shutdown.set_exit_code(loss.how == Departure::kRefused ? kRefusedExitCode : 0);
    shutdown.set_reason(loss.why);
    parts_.outbox.send(session, make_frame(MessageKind::kShutdown, shutdown));
  } else {
    wire::Fenced fenced;
    *fenced.mutable_seat() = to_wire(loss.seat);
    fenced.set_reason(loss.why);
    fenced.set_keeps(takes.keeps);
    fenced.set_takes_stage(takes.takes_followed);
    if (takes.takes_followed) fenced.set_stage(member.moves_to->value);
    parts_.outbox.send(session, make_frame(MessageKind::kFenced, fenced));
  }
  parts_.outbox.close(session);
}

void Settling::after_lost_seat(const SeatLoss& loss) {
  CoordinatorParts& p = parts_;
  if (p.life.is<life::Forming>() && loss.how == Departure::kFailed)
    return p.gathering.failed(loss.seat, loss.why);
  if (!p.life.is_running()) return;
  if (p.members.count_ready(loss.seat.stage) == 0 && !p.takeovers.await_candidate(loss) &&
      !(p.life.is<life::Training>() && p.kept_heirs.await(loss)))
    return p.rulings.stage_is_gone(loss);
  p.balancer.seats_changed();
  wire::PeerLost lost;
  *lost.mutable_seat() = to_wire(loss.seat);
  lost.set_reason(loss.why);
  p.audience.tell_following(make_frame(MessageKind::kPeerLost, lost));
  tell_views();
  p.takeovers.wake();
  progress_ = true;
}

// Runs outlive any number of peers.
void Settling::forget_long_gone() {
  CoordinatorParts& p = parts_;
  if (p.life.is_over()) return;
  while (const std::optional<PeerId> gone = p.members.long_gone()) {
    if (!p.ledger.forget(*gone)) return;  // once the step is over that it had a part in
    SWARMLINE_MARK("settling.long_gone_forgotten");
    p.journal.forget_peer(*gone, p.members.newest());
    p.members.forget(*gone);
    p.shadows.forget(*gone);
  }
}

// One that fails may be its machine, and is as good as killed.
void Settling::stage_is_gone(const SeatLoss& last) {
  const bool failed = last.how == Departure::kFailed;
  const std::string what = fmt::format("{} {}: {}", name_of(parts_.members.at(last.seat.peer)),
                                       failed ? "failed" : "was lost", last.why);
  if (!failed) return parts_.rulings.roll_back(what);
  if (fails_again_and_again()) return parts_.rulings.fail_run(what);
  SWARMLINE_MARK("settling.last_peer_failed");
  parts_.rulings.roll_back(what);
}

bool Settling::fails_again_and_again() {
  const std::uint64_t reached = std::max(parts_.beginning.furthest(), parts_.sequence.committed());
  if (reached > failed_after_) failed_stages_ = 0;
  failed_after_ = reached;
  return ++failed_stages_ >= kFailedStagesMax;
}

void Settling::tell_views() {
  const std::set<Seat> changed = parts_.members.refresh_views();
  for (const Seat& seat : changed)
    parts_.outbox.send(seat, make_frame(MessageKind::kMembership, parts_.members.news_for(seat)));
  parts_.standbys.tell_views(changed, parts_.members);
  parts_.data_holders.tell();
}

// ---- Replicas -----------------------------------------------------------------------------------

void Settling::compare_states() {
  for (const auto& [stage, version] : parts_.audit.take_unsettled()) {
    compare_state(stage, version);
    seat_followers(stage);
  }
}

// A minority is fenced and comes back with the others' state; of two that differ nobody knows which
// is right, unless a shadow does: else the run goes back.
void Settling::compare_state(StageId stage, std::uint64_t version) {
  using Kind = ReplicaAudit::Verdict::Kind;
  const auto verdict = parts_.audit.compare(stage, version, parts_.members.count_ready(stage));
  if (verdict.kind == Kind::kMinority)
    for (const Seat& seat : verdict.wrong)
      parts_.rulings.lose(
          seat,
          fmt::format("it holds other parameters after step {} than most of its stage", version));
  if (verdict.kind != Kind::kTie || parts_.standbys.settle_tie(stage, version, verdict.votes))
    return;
  parts_.rulings.roll_back(fmt::format("{} and {} hold different parameters after step {}",
                                       parts_.events.who(verdict.one),
                                       parts_.events.who(verdict.other), version));
}

// A follower is seated when it holds the committed version, bit for bit as a mate says it is.
void Settling::seat_followers(StageId stage) {
  if (!parts_.life.is<life::Training>()) return;
  const std::uint64_t version = parts_.sequence.committed();
  if (parts_.members.count_ready(stage) == 0 && !parts_.takeovers.is_emptied(stage)) {
    const auto heir = parts_.audit.heir(stage, version);
    if (heir && parts_.members.follows(heir->seat)) inherit(*heir);
    return;
  }
  for (const ReplicaAudit::Follower& follower : parts_.audit.followers_of(stage, version)) {
    parts_.audit.take_follower(follower.seat);
    if (!parts_.members.is_current(follower.seat)) continue;
    if (!follower.same) {
      SWARMLINE_MARK("settling.wrong_state_fetched");
      parts_.rulings.lose(follower.seat, "the state it fetched is not the one of its stage");
      continue;
    }
    seat_follower(follower, version);
  }
}

void Settling::seat_follower(const ReplicaAudit::Follower& follower, std::uint64_t version) {
  if (parts_.members.serves_early(follower.seat)) {
    has_the_rest(follower.seat, version);
  } else {
    take_seat(follower.seat, version);
  }
  parts_.audit.say(follower.seat, version, follower.digest);
}

void Settling::take_seat(const Seat& seat, std::uint64_t version) {
  CoordinatorParts& p = parts_;
  holds_its_state(seat, version);
  p.detector.works_from(seat, p.alarms.now());
  tell_views();
  p.phases.greet(seat);
  p.round.add_late(seat);
  p.leases.wake();
  p.kept_heirs.wake();
  progress_ = true;
}

void Settling::holds_its_state(const Seat& seat, std::uint64_t version) {
  CoordinatorParts& p = parts_;
  Member& member = p.members.at(seat.peer);
  p.journal.record_seat(record_of(member, "active"));
  p.members.become(seat.peer, MemberState::kReady);
  member.stepped = version;
  p.states.arrived(seat);
  p.balancer.seats_changed();
  p.events.of_peer(seat, "peer_seated", fmt::format(" holds version {}", version));
}

// ---- Steps --------------------------------------------------------------------------------------

void Settling::lease() {
  parts_.leases.pump();
  if (!parts_.sequence.may_run_ahead() || !all_leased()) return;
  SWARMLINE_MARK("settling.step_opened_beside_another");
  phases_due_ = true;
}

bool Settling::all_leased() const {
  return std::ranges::all_of(parts_.ledger.open_phases(), [&](const Phase& phase) {
    return phase.kind == PhaseKind::kEval || parts_.ledger.leasable(phase) == 0;
  });
}

void Settling::open_phases(const CollectedHoldings* collected) {
  for (const RunSequence::Opening& opening : parts_.sequence.take_openings(all_leased())) {
    parts_.phases.open(opening, parts_.identity.term, parts_.boundaries.codecs());
    if (collected != nullptr) parts_.resumption.collect(opening, *collected);
    parts_.phases.announce(opening.phase);
  }
  parts_.leases.wake();
}

void Settling::close_complete_phases() {
  CoordinatorParts& p = parts_;
  for (const Phase& phase : p.ledger.open_phases()) {
    if (p.phases.is_sealed(phase)) {
      p.round.wake();
    } else if (!p.ledger.complete(phase)) {
      continue;
    } else if (phase.kind == PhaseKind::kEval) {
      finish_eval(phase);
    } else if (!p.round.is_active() && p.sequence.may_seal(phase.step)) {
      p.round.begin(phase.step, p.identity.term);
      p.sequence.on_sealed(phase.step);
      phases_due_ = true;
    }
  }
}

void Settling::finish_eval(const Phase& phase) {
  CoordinatorParts& p = parts_;
  const auto tokens = static_cast<double>(std::uint64_t{p.ledger.indices(phase)} *
                                          parts_.shape.options.config.batch.microbatch *
                                          parts_.shape.options.config.batch.sequence);
  const double loss = p.ledger.loss_sum(phase) / tokens;
  p.ledger.commit(phase);
  for (RunObserver* observer : p.observers) observer->on_retired(phase);
  p.stats.on_evaluated(loss);
  p.journal.record_evaluated(phase.step);
  p.journal.record_totals(to_text(run_totals(p.status_sources())));
  wire::RetirePhase retire;
  *retire.mutable_phase() = to_wire(phase);
  p.audience.tell_serving(make_frame(MessageKind::kRetirePhase, retire));
  if (p.events.takes_lines()) {
    EvalLogLine line;
    line.version = phase.step;
    line.loss = loss;
    line.sequences = parts_.shape.options.eval_sequences;
    line.tokens = static_cast<std::uint64_t>(tokens);
    line.wall_seconds = p.events.wall_seconds();
    p.events.add(line);
  }
  p.sequence.on_evaluated(phase.step);
  progress_ = phases_due_ = true;  // a step that only waited for this evaluation can close now
}

void Settling::commit() {
  CoordinatorParts& p = parts_;
  const std::optional<CommitRecord> record = p.committer.commit(p.identity.era);
  if (!record) return;
  const Phase phase = p.round.phase();
  std::map<PeerId, std::uint32_t> counts;
  for (const StageSpec& stage : p.shape.stages)
    for (const auto& [peer, ranges] : p.ledger.ownership(phase, stage.stage))
      for (const IndexRange& range : ranges) counts[peer] += range.count;
  std::vector<PeerContributions> shares;
  for (const auto& [peer, member] : p.members.members()) {
    const auto counted = counts.find(peer);
    const std::uint32_t owned = counted == counts.end() ? 0 : counted->second;
    if (owned > 0) p.detector.contributed(peer);
    if (owned == 0 && member.state == MemberState::kLost) continue;
    shares.push_back(
        {.peer = peer, .stage = member.seat.stage, .microbatches = owned, .name = member.name});
  }
  for (const PeerContributions& share : shares)
    p.members.contributed(share.peer, share.microbatches);
  const std::uint64_t reduce_bytes = p.round.board().reduce_bytes();
  p.round.end();
  p.ledger.commit(phase);
  for (RunObserver* observer : p.observers) observer->on_retired(phase);
  p.sequence.on_committed(record->step);
  end_early_seats();
  restarts_ = 0;
  p.stats.on_commit(*record, reduce_bytes, std::move(shares), p.alarms.now());
  count_step(record->version <= p.beginning.furthest());
  p.journal.record_totals(to_text(run_totals(p.status_sources())));
  choose_codecs();
  if (p.events.takes_lines()) p.events.add(log_line(*record, reduce_bytes));
  if (record->version < parts_.shape.options.config.run.steps)
    p.checkpointer.on_committed(newest_version());
  if (moves_peers()) p.relocation.plan();
  progress_ = phases_due_ = true;
  p.takeovers.wake();
  p.relocation.wake();
}

bool Settling::moves_peers() const {
  return parts_.life.is<life::Training>() && !parts_.sequence.finished();
}

CommittedVersion Settling::newest_version() const {
  const std::uint64_t version = parts_.sequence.committed();
  return {.version = version,
          .updates = parts_.committer.updates(),
          .tokens = trained_tokens(parts_.status_sources(), version)};
}

StepLogLine Settling::log_line(const CommitRecord& commit, std::uint64_t reduce_bytes) const {
  const CoordinatorParts& p = parts_;
  StepLogLine line = p.stats.log_line(commit, p.boundaries, reduce_bytes, p.events.wall_seconds());
  if (p.cost.is_known()) line.cost = p.cost.totals().total();
  return line;
}

// Phases that open from now on travel so; those that are open keep what they were opened with.
void Settling::choose_codecs() {
  CoordinatorParts& p = parts_;
  std::vector<std::uint32_t> peers;
  for (const StageSpec& stage : p.shape.stages)
    peers.push_back(static_cast<std::uint32_t>(p.members.count_serving(stage.stage)));
  const std::vector<std::string> changes = p.boundaries.on_commit(peers);
  if (changes.empty()) return;
  p.journal.record_codecs(p.boundaries.to_text());
  for (const std::string& change : changes) p.events.event("codec", change);
}

// The last version is in a checkpoint before the run ends.
bool Settling::finish() {
  CoordinatorParts& p = parts_;
  if (!p.sequence.finished() || p.checkpointer.is_active() || p.takeovers.any() ||
      p.kept_heirs.any())
    return false;
  const std::uint64_t version = p.sequence.committed();
  for (const auto& [peer, member] : p.members.members())
    if (member.state == MemberState::kReady && member.stepped < version) return false;
  if (!p.checkpointer.has_saved(version)) {
    if (!p.life.is<life::FinalCheckpoint>()) p.life.move_to(life::FinalCheckpoint{});
    return p.checkpointer.begin_last(newest_version());
  }
  const std::uint64_t steps = parts_.shape.options.config.run.steps;
  const bool drained = p.sequence.draining() && version < steps;
  if (drained && spent_.empty())  // a coordinator before had begun to end for it
    spent_ = p.cost.spent(p.stats.totals().seconds).value_or("");
  end(0, drained ? fmt::format("{}{}drained after step {} of {}", spent_,
                               spent_.empty() ? "" : "; ", version, steps)
                 : fmt::format("finished {} steps", version));
  return true;
}

}  // namespace swarmline
