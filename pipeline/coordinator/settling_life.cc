// The life of a run: how training starts, goes back, is handed over, and ends.
#include <algorithm>
#include <charconv>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"
#include "base/marks.h"
#include "pipeline/coordinator/run/bargain.h"
#include "pipeline/coordinator/settling.h"
#include "pipeline/protocol/knobs.h"
#include "pipeline/protocol/message_kinds.h"

namespace swarmline {

namespace {

// "step-100": what a checkpoint's path ends with.
std::uint64_t version_in(const std::string& checkpoint) {
  std::uint64_t version = 0;
  const std::size_t dash = checkpoint.rfind('-');
  if (dash == std::string::npos) return 0;
  const char* const end = checkpoint.data() + checkpoint.size();
  std::from_chars(checkpoint.data() + dash + 1, end, version);
  return version;
}
}  // namespace

// ---- The journal --------------------------------------------------------------------------------

// If the journal already holds a run, it goes on: with the peers that still serve it, else from the
// newest checkpoint.
Result<void> Settling::open_journal(bool heard_nobody) {
  auto run_id = parts_.journal.run_id();
  if (!run_id) return std::unexpected(std::move(run_id).error());
  const auto key = parts_.journal.key();
  if (!key) return std::unexpected(key.error());
  const auto term = parts_.journal.term();
  if (!term) return std::unexpected(term.error());
  if (*term >= kTermMax)
    return swarmline::fail(ErrorCode::kRefused,
                           fmt::format("this run was restarted {} times", kTermMax));
  parts_.identity.term = Term{*term + 1};
  parts_.ledger.begin_term(parts_.identity.term);
  // First: whoever is asked under it may know that no older one counts.
  const auto run = parts_.journal.read();
  if (!run) return std::unexpected(run.error());
  parts_.journal.record_term(parts_.identity.term);
  if (!*run_id) {
    parts_.journal.record_run_id(parts_.shape.options.run_id);
    parts_.identity.key = parts_.shape.options.run_key;
    if (!parts_.identity.key.empty()) parts_.journal.record_key(parts_.identity.key);
    SWARMLINE_TRY(begin_segment(0));
    parts_.writer.opened();
    if (parts_.shape.options.goes_on)
      go_on_without_journal();
    else if (!parts_.shape.config.run.init.empty())
      take_initial_parameters();
    return {};
  }

  parts_.identity.run_id = **run_id;
  parts_.identity.key = key->value_or("");
  parts_.identity.era = run->era;
  SWARMLINE_TRY(take_up_segments(run->segments));
  const bool changed = needs_new_era(parts_.segments, wish());
  parts_.writer.opened();
  // Codecs that were chosen under other settings say nothing.
  if (run->codecs && !changed && !parts_.boundaries.restore(*run->codecs))
    log(LogLevel::kWarn, "the journal's codecs are not those of this run; they are chosen again");
  parts_.beginning.reached(run->last_commit ? run->last_commit->version : 0);
  if (run->has_trained()) parts_.gathering.set_trained();
  SWARMLINE_TRY(go_on_counting(run->last_commit ? run->last_commit->version : 0));
  if (run->is_training() && !changed) {
    parts_.checkpointer.found(run->checkpoint);
    saved_version_ = std::max(run->era_version, version_in(run->checkpoint));
    parts_.sequence = RunSequence(sequence_at(0));
    if (run->stopping) parts_.sequence.drain();
    parts_.life.move_to(life::Recovering{});
    parts_.recovery.begin(*run, parts_.identity.term, heard_nobody);
    return {};
  }
  parts_.members.begin_after(run->newest_peer);
  std::set<PeerId> known;
  for (SeatRecord seat : run->seats) {
    parts_.members.begin_after(seat.seat.peer);
    known.insert(seat.seat.peer);
    if (seat.state != "active") continue;
    seat.state = "fenced";
    parts_.journal.record_seat(seat);
  }
  SWARMLINE_TRY(check_budget());
  first_era_here_ = true;
  roll_back(changed ? "it goes on with other settings" : "the coordinator was started again");
  // For a while: nobody knows who of them lives.
  if (parts_.gathering.has_trained()) parts_.gathering.expect(known);
  return {};
}

// What the coordinators before said of the run and have counted, so that this one goes on with it.
Result<void> Settling::go_on_counting(std::uint64_t committed) {
  auto events = parts_.journal.events(EventLog::kNewestKept);
  if (!events) return std::unexpected(std::move(events).error());
  parts_.events.restore(std::move(*events));
  const auto text = parts_.journal.totals();
  if (!text) return std::unexpected(text.error());
  parts_.cost.nothing_known_before(committed);
  if (!*text) {
    parts_.stats.nothing_known_before(committed);
    return {};
  }
  auto totals = parse_run_totals(**text);
  if (!totals) return std::unexpected(std::move(totals).error());
  if (totals->cost) parts_.cost.restore(*totals->cost);
  parts_.cost.warn_no_more(totals->seconds);
  parts_.stats.restore(std::move(*totals));
  return {};
}

// ---- Starting -----------------------------------------------------------------------------------

void Settling::start_training() {
  CoordinatorParts& p = parts_;
  p.journal.record_started(p.identity.era);
  const CheckpointSection& checkpoint = parts_.shape.options.config.checkpoint;
  if (!p.gathering.has_trained() && checkpoint.every_steps == 0 && checkpoint.every_minutes == 0 &&
      parts_.shape.options.config.balance.shadows.none())
    p.events.event(
        "unprotected",
        "checkpoint.every_steps, checkpoint.every_minutes and balance.shadows are 0: a stage that "
        "loses all its peers takes the run back to where it began",
        LogLevel::kWarn);
  p.gathering.stop();
  p.gathering.set_trained();
  if (went_back_at_ != Instant{})
    loading_ = p.alarms.now() - std::exchange(went_back_at_, Instant{});
  p.life.move_to(life::Training{});
  tell_views();
  p.stats.on_training_started(p.alarms.now());
  p.checkpointer.start(p.alarms.now());
  p.events.event("start",
                 fmt::format("{} peers in {} stages, version {}", p.sessions.seated().size(),
                             p.shape.stages.size(), p.beginning.version()));
  progress_ = phases_due_ = true;
}

void Settling::end_recovery() {
  CoordinatorParts& p = parts_;
  if (const std::set<Seat> missing = p.recovery.take_missing(); !missing.empty()) {
    SWARMLINE_MARK("settling.did_not_come_back");
    for (const Seat& seat : missing)
      p.rulings.lose(seat, "it did not come back to the coordinator");
    return;
  }
  CollectedHoldings collected = p.recovery.take();
  p.gathering.set_trained();
  p.gathering.stop();
  // Whoever was to end is gone: this coordinator was started to go on.
  if (p.sequence.draining() && collected.holdings.empty()) {
    SWARMLINE_MARK("settling.drain_forgotten");
    p.sequence.forget_drain();
    p.events.event(
        "drain_forgotten",
        "the run was to end after its open step, and nobody who held that is left: it goes on");
  }
  if (p.sequence.draining()) {
    p.life.move_to(life::Draining{});
  } else {
    p.life.move_to(life::Training{});
  }
  p.stats.on_training_started(p.alarms.now());
  p.checkpointer.start(p.alarms.now());
  for (const StageSpec& stage : p.shape.stages)
    if (p.members.count_ready(stage.stage) == 0)
      return p.rulings.roll_back(fmt::format(
          "none of the peers of stage {} came back to the coordinator", stage.stage.value));
  if (!collected.last_commit && !collected.updates)
    return p.rulings.roll_back("nobody knows how many updates the run has had");
  p.committer.begin_with(collected.last_commit ? collected.last_commit->updates
                                               : *collected.updates);
  // With a delay, the next step but one may have been open.
  const bool ahead = parts_.shape.options.config.pipeline.delay == 1 &&
                     collected.names_step(collected.committed + 1);
  p.sequence.restore(collected.committed, ahead, collected.evaluated);
  if (const auto begun = begin_segment(collected.committed); !begun)
    return fail(begun.error().what);
  p.resumption.tell(collected);
  p.data_holders.tell();
  open_phases(&collected);
  for (auto& handle : collected.held) handle();
  progress_ = true;
}

// ---- Going back ---------------------------------------------------------------------------------

void Settling::roll_back(const std::string& why) {
  CoordinatorParts& p = parts_;
  if (p.life.is<life::RollingBack>()) return;
  const bool further = p.beginning.count_rollback(p.sequence.committed());
  if (p.sequence.draining())
    return fail(
        fmt::format("{}; the run was ending, and resumes from {} when it is started again", why,
                    p.checkpointer.last().empty() ? "its beginning" : p.checkpointer.last()));
  if (!further)
    return fail(fmt::format("{}; the run went back {} times without getting beyond step {}", why,
                            knobs().fruitless_eras_max, p.beginning.furthest()));
  SWARMLINE_MARK("settling.rolled_back");
  dismiss_everybody("the run goes back to a checkpoint: " + why);
  for (RunObserver* observer : p.observers) observer->on_rollback();
  p.stats.on_rollback();
  p.cost.on_rollback();
  p.rulings.clear_losses();
  progress_ = phases_due_ = false;
  if (went_back_at_ == Instant{}) went_back_at_ = p.alarms.now();
  p.life.move_to(life::RollingBack{why});
  p.beginning.look();
}

// Whatever they hold is of another era. They come back by themselves.
void Settling::dismiss_everybody(const std::string& why) {
  CoordinatorParts& p = parts_;
  std::set<PeerId> expected;
  const std::map<PeerId, SessionPtr> seated = p.sessions.seated();
  for (const auto& [peer, session] : seated) {
    const Member& member = p.members.at(peer);
    if (!member.draining || member.moves_to) expected.insert(peer);
    p.members.fence(session->seat);
    p.detector.forget(peer);
    p.sessions.unseat(peer);
    p.journal.record_seat(record_of(member, "fenced"));
    wire::Fenced fenced;
    *fenced.mutable_seat() = to_wire(session->seat);
    fenced.set_reason(why);
    p.outbox.send(session, make_frame(MessageKind::kFenced, fenced));
    p.outbox.close(session);
  }
  p.gathering.expect(expected);
}

// A run that begins with parameters of another model reads them as those of an era.
void Settling::take_initial_parameters() {
  SWARMLINE_MARK("settling.takes_initial_parameters");
  takes_initial_ = true;
  parts_.life.move_to(life::RollingBack{"run.init = " + parts_.shape.config.run.init});
  parts_.beginning.look();
}

// Its journal was lost with its machine, its checkpoints were not.
void Settling::go_on_without_journal() {
  parts_.life.move_to(life::RollingBack{"the run's journal is new, and its checkpoints are not"});
  parts_.beginning.look();
}

void Settling::begin_era(const Result<void>& found) {
  CoordinatorParts& p = parts_;
  if (!p.life.is<life::RollingBack>()) return;
  const std::string why = p.life.as<life::RollingBack>().why;
  const bool is_first = std::exchange(takes_initial_, false);
  if (!found)
    return fail(fmt::format("{}; the run can't {}: {}", why, is_first ? "begin" : "go back",
                            found.error().what));
  const std::uint64_t version = p.beginning.version();
  const std::string& path = p.beginning.path();
  if (std::exchange(first_era_here_, false) && version == parts_.shape.options.config.run.steps) {
    SWARMLINE_MARK("settling.ended_before");
    go_on_from(path, version);
    return end_again(fmt::format("finished {} steps", version));  // killed as it said so
  }
  // Another journal may have counted further.
  if (!is_first) p.identity.era = Era{std::max(p.identity.era, p.beginning.era()).value + 1};
  p.journal.record_era(p.identity.era, version, p.beginning.updates(), path);
  const std::uint64_t reached = p.beginning.furthest();
  const std::string again =
      reached > version ? fmt::format("; steps {} to {} are computed again", version + 1, reached)
                        : "";
  era_sentence_ = fmt::format("era {} begins with version {} ({}): {}{}", p.identity.era.value,
                              version, path.empty() ? "the initial parameters" : path, why, again);
  if (is_first) {
    era_sentence_.clear();
    p.events.event("initial_parameters", fmt::format("{} ({})", path, why));
  } else {
    p.events.event("new_era", era_sentence_, LogLevel::kWarn);
  }
  // After its era: in one of before, its peers would have other settings.
  if (const auto begun = begin_segment(version); !begun) return fail(begun.error().what);
  go_on_from(path, version);
  p.gathering.begin(why, reached);
  p.arrivals.wake();
}

void Settling::go_on_from(const std::string& path, std::uint64_t version) {
  CoordinatorParts& p = parts_;
  p.sequence = RunSequence(sequence_at(version));
  p.committer.begin_with(p.beginning.updates());
  p.checkpointer.began_with(path, version);
  p.stats.on_era(version);
  p.cost.on_era(version);
  p.life.move_to(life::Forming{});
}

// ---- Another reign ------------------------------------------------------------------------------

bool Settling::may_begin_again() const {
  // Another that leads meanwhile is found out by the journal, which refuses this one's term.
  return parts_.life.is_running() && restarts_ < knobs().self_restarts_max;
}

// Nobody else holds its stage's state: before that is given up for lost, it may be this end.
bool Settling::is_cut_off(const Seat& seat) const {
  return may_begin_again() && !parts_.takeovers.is_emptied(seat.stage) &&
         parts_.members.ready_of(seat.stage) == std::vector<Seat>{seat};
}

// On its journal, in this process: whoever lives comes back with its seat and with what it holds.
void Settling::restart_itself(const Rulings::SelfRestart& why) {
  if (!may_begin_again()) return;
  SWARMLINE_MARK("settling.restarted_itself");
  if (parts_.life.is<life::FinalCheckpoint>())
    SWARMLINE_MARK("settling.restarted_in_last_checkpoint");
  parts_.events.event("lost_touch", why.why, LogLevel::kWarn);
  parts_.checkpointer.abandon("the coordinator begins again");
  parts_.life.move_to(life::RestartingItself{});
  network_.stop_listening();
  parts_.alarms.post([this, next = SelfRestart{.times = restarts_ + 1,
                                               .heard_nobody = why.heard_nobody,
                                               .step_seconds = step_seconds()}] {
    const auto again = ends_.again;
    again(next);
  });
}

double Settling::step_seconds() const {
  const double measured = parts_.stats.seconds_per_step();
  return measured > 0 ? measured : step_seconds_;
}

Duration Settling::patience() const {
  const CoordinatorParts& p = parts_;
  const std::uint64_t committed = std::max(p.sequence.committed(), p.recovery.committed());
  const std::uint64_t saved = std::max(p.checkpointer.saved_version().value_or(0), saved_version_);
  const NetSection& net = p.shape.config.net;
  return worth_waiting({.steps = committed - std::min(saved, committed),
                        .step_seconds = step_seconds(),
                        .loading = std::max<Duration>(loading_, knobs().gather_time),
                        .unmeasured = from_seconds(net.peers_wait_seconds)},
                       from_seconds(p.shape.config.run.wait_seconds));
}

void Settling::step_down(const std::string& why) {
  SWARMLINE_MARK("settling.stepped_down");
  parts_.life.move_to(life::SteppedDown{why});
  log(LogLevel::kWarn, "{}", parts_.life.sentence());
  parts_.alarms.post([this] { leave(RunEnds::kDeposed, parts_.life.sentence()); });
}

// ---- The end ------------------------------------------------------------------------------------

void Settling::request_stop(bool now) {
  CoordinatorParts& p = parts_;
  if (now) end_without_journal();
  if (p.life.is_over()) return settle();
  if (now) {
    end(kExitOfInterrupted, "interrupted");
  } else if (p.life.is<life::RollingBack>()) {
    end(0, "stopped before the run went back to a checkpoint");
  } else if (p.life.is<life::Forming>()) {
    end(0, fmt::format("stopped before step {}", p.beginning.version() + 1));
  } else if (p.life.is<life::Training>() || p.life.is<life::Recovering>()) {
    drain("");
  }
  settle();
}

// It ends after the open step; where it recovers, once it trains. `why`: empty: its user asked.
void Settling::drain(const std::string& why) {
  CoordinatorParts& p = parts_;
  p.sequence.drain();
  p.journal.record_stopping();
  if (!p.life.is<life::Training>()) return;
  p.life.move_to(life::Draining{});
  p.events.event("drain", fmt::format("after step {}{}{}", p.sequence.committed(),
                                      why.empty() ? "" : ": ", why));
  phases_due_ = true;
}

Result<std::string> Settling::request_checkpoint() {
  CoordinatorParts& p = parts_;
  if (!p.life.is<life::Training>())
    return swarmline::fail(
        ErrorCode::kRefused,
        "the run is not training now, and has nothing new to save; \"swarmline status\" says what "
        "it does");
  SWARMLINE_MARK("settling.checkpoint_asked_for");
  const bool active = p.checkpointer.is_active();
  p.checkpointer.ask();
  return fmt::format("a checkpoint will be written {}; the run goes on",
                     active ? "when the one that is being written is done"
                            : fmt::format("as step-{}", p.sequence.committed() + 1));
}

void Settling::fail(const std::string& sentence) {
  log(LogLevel::kError, "{}", sentence);
  parts_.events.event("failed", sentence, LogLevel::kError);
  parts_.checkpointer.abandon("the run has failed");
  end(1, sentence);
}

void Settling::end(int exit_code, const std::string& sentence) {
  CoordinatorParts& p = parts_;
  p.life.move_to(life::Ended{.exit_code = exit_code, .sentence = sentence});
  p.events.event("end", sentence);
  if (p.cost.is_known()) p.journal.record_totals(to_text(run_totals(p.status_sources())));
  say_ended();
}

// Those who have not heard of it are told; the journal knows, unless the one before had no time.
void Settling::end_again(const std::string& sentence) {
  const auto& events = parts_.events.newest();
  if (events.empty() || events.back().kind != "end" || events.back().detail != sentence)
    return end(0, sentence);
  log(LogLevel::kInfo, "ended before it was started again: {}", sentence);
  parts_.life.move_to(life::Ended{.exit_code = 0, .sentence = sentence});
  say_ended();
}

void Settling::say_ended() {
  CoordinatorParts& p = parts_;
  p.journal.record_ended();
  farewell_after_ = p.journal.progress().given;
  tell_the_end();
  // Whoever interrupts it does not wait for a disk that is full.
  if (p.life.as<life::Ended>().exit_code == kExitOfInterrupted)
    p.alarms.after(knobs().last_record_time, [this] { end_without_journal(); });
}

Frame Settling::shutdown() const {
  const auto& ended = parts_.life.as<life::Ended>();
  wire::Shutdown shutdown;
  shutdown.set_exit_code(static_cast<std::uint32_t>(ended.exit_code));
  shutdown.set_reason(ended.sentence);
  return make_frame(MessageKind::kShutdown, shutdown);
}

void Settling::tell_the_end() {
  parts_.audience.tell_everybody(shutdown());
  parts_.relays.tell_all(shutdown());
  parts_.arrivals.tell_the_end_to_all(shutdown());
}

// The end was decided; once the journal has it, it is told, and peers get so long to hear it before
// the coordinator's process goes.
void Settling::say_farewell() {
  CoordinatorParts& p = parts_;
  if (!p.life.is<life::Ended>() || !farewell_after_) return;
  if (p.writer.refused()) {
    farewell_after_.reset();
    return leave(RunEnds::kDeposed, p.writer.refused()->what);
  }
  if (p.journal.progress().durable < *farewell_after_) return;
  farewell_after_.reset();
  p.alarms.after(knobs().farewell_time, [this] {
    const auto& ended = parts_.life.as<life::Ended>();
    leave(ended.exit_code, ended.sentence);
  });
}

// What it had decided and not said is lost, as if it had been killed before.
void Settling::end_without_journal() {
  if (!parts_.life.is<life::Ended>() || !farewell_after_) return;
  SWARMLINE_MARK("settling.ended_without_journal");
  parts_.outbox.drop_waiting();
  tell_the_end();
  farewell_after_ = parts_.journal.progress().durable;
}

void Settling::leave(int exit_code, const std::string& sentence) {
  network_.stop_listening();
  parts_.sessions.close_all();
  const auto finished = ends_.finished;
  finished({exit_code, sentence});
}

}  // namespace swarmline
