// A coordinator that is begun again on its journal: raises the term, collects from every seat that
// the journal knows what it holds, ends the seats that do not answer, and goes on with the open
// steps.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/limits.h"
#include "base/log.h"
#include "engine/optimizer/flat_optimizer.h"
#include "pipeline/coordinator/coordinator_impl.h"
#include "pipeline/protocol/knobs.h"

namespace swarmline {

namespace {
constexpr int kDeposed = 3;                // exit code
constexpr std::size_t kHeldMax = 1 << 16;  // messages that wait for the collecting to end

bool names_step(const wire::Holdings& holdings, std::uint64_t step) {
  return std::any_of(holdings.phases().begin(), holdings.phases().end(),
                     [&](const wire::PhaseHoldings& held) {
                       return !held.phase().eval() && held.phase().step() == step;
                     });
}
}  // namespace

void Coordinator::Impl::begin_collecting(const JournaledRun& run) {
  collecting_ = std::make_unique<Collecting>();
  collecting_->evaluated = run.evaluated;
  collecting_->committed = run.era_version;
  if (run.era_updates_known) collecting_->updates = run.era_updates;
  last_checkpoint_ = run.checkpoint;
  if (run.last_commit && run.last_commit->era == era_.value) {
    collecting_->last_commit = run.last_commit;
    collecting_->committed = run.last_commit->version;
  }
  for (const SeatRecord& seat : run.seats) membership_.restore(seat, seat.state == "active");
  for (const Seat& seat : membership_.away()) collecting_->awaited.insert(seat);
  collecting_->heard_nobody = again_.heard_nobody;
  state_ = State::kCollecting;
  trained_ = true;
  if (run.stopping) sequence_.drain();
  event("begun_again", fmt::format("term {}, after step {}; waiting for {} peers", term_.value,
                                   collecting_->committed, collecting_->awaited.size()));
  arm_collect_deadline();
  if (collecting_->awaited.empty()) end_collecting_soon();  // it had sent everybody off
}

// Peers know the address that it had before.
Result<Address> Coordinator::Impl::listen() {
  auto wanted = parse_address(options_.config.net.listen);
  if (!wanted) return wanted;
  auto before = journal_.address();
  if (!before) return std::unexpected(before.error());
  Result<Address> bound = fail(ErrorCode::kNotFound, "");
  const auto try_at = [&](const Address& address) {
    bound = network_.listen(address, [weak = weak()](std::shared_ptr<Connection> connection) {
      if (auto self = weak.lock()) (*self)->accept(std::move(connection));
    });
    return bound.has_value();
  };
  const auto known = *before ? parse_address(**before) : Result<Address>(*wanted);
  if (wanted->port != 0 || !known || !try_at(*known)) {
    const std::string taken = bound ? "" : bound.error().what;
    if (!try_at(*wanted)) return bound;
    if (*before && known && wanted->port == 0) SWARMLINE_TRY(say_moved(*known, *bound, taken));
  }
  SWARMLINE_TRY(journal_.record_address(to_string(*bound)));
  return bound;
}

// Better elsewhere than not at all: the peers may be gone, too.
Result<void> Coordinator::Impl::say_moved(const Address& from, const Address& to,
                                          const std::string& why) {
  const auto run = journal_.read();
  if (!run) return std::unexpected(run.error());
  if (!run->has_trained()) return {};  // nobody looks for it
  event("moved",
        fmt::format(
            "this coordinator listens on {}, the one before listened on {} ({}): peers that "
            "look for it there give up after {:.0f} s and have to be started again",
            to_string(to), to_string(from), why, options_.config.net.coordinator_patience_seconds),
        LogLevel::kWarn);
  return {};
}

// ---- Collecting ---------------------------------------------------------------------------------

// Where a standby may have taken over, peers first have to find out that it did.
void Coordinator::Impl::arm_collect_deadline() {
  runtime_.cancel(collecting_->deadline);
  Duration wait = from_seconds(options_.config.net.collect_seconds);
  if (!options_.config.net.standby.empty() && collecting_->holdings.empty())
    wait += 2 * std::max(knobs().coordinator_silence,
                         10 * from_seconds(options_.config.net.heartbeat_seconds));
  if (collecting_->heard_nobody)
    wait = std::max(wait, from_seconds(options_.config.net.peers_wait_seconds));
  collecting_->deadline = runtime_.call_after(wait, [weak = weak()] {
    auto self = weak.lock();
    if (!self || !(*self)->collecting_ || (*self)->ended_) return;
    if ((*self)->detector_.was_stopped((*self)->runtime_.now()))
      return (*self)->arm_collect_deadline();
    (*self)->end_collecting();
  });
}

// Every stage has somebody, and for as long as a peer may be silent nobody came: the rest is as
// lost as if it had a coordinator. (With a standby, peers may still hang on the one before.)
void Coordinator::Impl::arm_quiet() {
  runtime_.cancel(collecting_->quiet);
  if (!options_.config.net.standby.empty()) return;
  const Duration silence = detector_.silence_allowed();
  collecting_->quiet = runtime_.call_after(std::max(knobs().redial_time, silence), [weak = weak()] {
    auto self = weak.lock();
    if (!self || !(*self)->collecting_ || (*self)->ended_) return;
    Impl& impl = **self;
    if (impl.detector_.was_stopped(impl.runtime_.now())) return impl.arm_quiet();
    const bool held = std::ranges::none_of(impl.shape_.stages, [&](const StageSpec& stage) {
      return impl.membership_.ready_of(stage.stage).empty();
    });
    if (held) impl.end_collecting();
  });
}

// What it holds fits what the journal says.
bool Coordinator::Impl::resumes(const wire::Hello& hello) const {
  if (!collecting_ || !hello.has_holdings() || hello.run_id() != options_.run_id) return false;
  const Seat seat = from_wire(hello.previous());
  if (!collecting_->awaited.contains(seat) && !collecting_->holdings.contains(seat)) return false;
  const std::uint64_t committed = collecting_->committed;
  const std::uint64_t heard = hello.holdings().version();
  if (hello.holdings().era() != era_.value) return false;
  return membership_.members().at(seat.peer).address == hello.address() && heard <= committed &&
         heard + 1 >= committed && hello.holdings().leased() <= hello.holdings().wanted() &&
         static_cast<std::size_t>(hello.holdings().phases_size()) <= Ledger::kOpenPhasesMax;
}

void Coordinator::Impl::resume_seat(const SessionPtr& session, const wire::Hello& hello,
                                    const RpcChannel::Respond& respond) {
  const Seat seat = from_wire(hello.previous());
  if (const SessionPtr before = sessions_.unseat(seat.peer)) {
    before->seat = {};  // it is here again before the end of that connection was seen
    before->channel->close();
  }
  sessions_.seat(session, seat);
  detector_.watch(seat, runtime_.now());
  detector_.works_from(seat, runtime_.now());
  membership_.resume(hello);
  event("peer_resumed", fmt::format("{} at {}", to_string(seat), hello.address()));
  wire::Welcome welcome;
  welcome.set_term(term_.value);
  welcome.set_era(era_.value);
  welcome.set_run_id(options_.run_id);
  *welcome.mutable_seat() = to_wire(seat);
  welcome.set_resumed(true);
  name_coordinators(welcome);
  respond(make_frame(MessageKind::kWelcome, welcome));
  const bool first = collecting_->holdings.empty();
  collecting_->holdings[seat] = hello.holdings();
  if (first) arm_collect_deadline();
  arm_quiet();
  no_longer_awaited(seat);
}

// It may come again.
bool Coordinator::Impl::awaited_again(const Session& session) {
  const Seat seat = session.seat;
  if (!collecting_ || collecting_->holdings.erase(seat) == 0) return false;
  sessions_.unseat(seat.peer);
  detector_.forget(seat.peer);
  membership_.at(seat.peer).state = MemberState::kAway;
  collecting_->awaited.insert(seat);
  arm_quiet();
  return true;
}

void Coordinator::Impl::no_longer_awaited(const Seat& seat) {
  if (!collecting_ || collecting_->awaited.erase(seat) == 0 || !collecting_->awaited.empty())
    return;
  end_collecting_soon();
}

void Coordinator::Impl::end_collecting_soon() {
  runtime_.post([weak = weak()] {
    auto self = weak.lock();
    if (self && (*self)->collecting_ && (*self)->collecting_->awaited.empty() && !(*self)->ended_)
      (*self)->end_collecting();
  });
}

// One whose message would be lost says all of it again, when it comes back; what it said over a
// connection that has ended it knows to be lost.
bool Coordinator::Impl::waits_for_collecting(const SessionPtr& session,
                                             std::function<void()> handle) {
  if (!collecting_) return false;
  if (collecting_->held.size() < kHeldMax) {
    collecting_->held.push_back([session, handle = std::move(handle)] {
      if (!session->closed) handle();
    });
  } else {
    log(LogLevel::kWarn, "closing {}: {} messages wait for the collecting to end already",
        to_string(session->seat), kHeldMax);
    session->channel->close();
  }
  return true;
}

// ---- Going on -----------------------------------------------------------------------------------

void Coordinator::Impl::end_collecting() {
  runtime_.cancel(collecting_->deadline);
  runtime_.cancel(collecting_->quiet);
  const std::set<Seat> missing = std::exchange(collecting_->awaited, {});
  for (const Seat& seat : missing) {
    fence(seat, "it did not come back to the coordinator");
    if (ended_) return;
  }
  const std::unique_ptr<Collecting> collected = std::move(collecting_);
  state_ = sequence_.draining() ? State::kDraining : State::kTraining;
  stats_.on_training_started(runtime_.now());
  for (const StageSpec& stage : shape_.stages)
    if (membership_.ready_of(stage.stage).empty())
      return begin_from_checkpoint(fmt::format(
          "none of the peers of stage {} came back to the coordinator", stage.stage.value));
  if (collected->last_commit) {
    updates_ = collected->last_commit->updates;
  } else if (collected->updates) {
    updates_ = *collected->updates;
  } else {
    return begin_from_checkpoint("nobody knows how many updates the run has had");
  }
  bool ahead = false;  // with a delay, the next step but one was open
  for (const auto& [seat, holdings] : collected->holdings)
    ahead = ahead || names_step(holdings, collected->committed + 1);
  sequence_.restore(collected->committed, ahead && options_.config.pipeline.delay == 1,
                    collected->evaluated);
  resumed_ = std::move(collected->holdings);
  say_resume(collected->last_commit);
  advance();
  resumed_.clear();
  for (auto& handle : collected->held)
    if (!ended_) handle();
  for (const Phase& phase : ledger_.open_phases()) after_progress(phase);
  if (!ended_) advance();
}

// Voids what the one before began; whoever did not hear of the last commit hears of it now.
void Coordinator::Impl::say_resume(const std::optional<CommitRecord>& last) {
  wire::Resume resume;
  for (const auto& [peer, member] : membership_.members()) {
    Seat over = member.seat;
    if (member.state != MemberState::kLost)
      --over.incarnation.value;  // it may have begun meanwhile
    if (over.incarnation.value > 0) *resume.add_lost() = to_wire(over);
  }
  membership_.refresh_views();
  for (const auto& [seat, holdings] : resumed_) {
    notify(seat, make_frame(MessageKind::kResume, resume));
    notify(seat, make_frame(MessageKind::kMembership, membership_.view_for(seat)));
    if (last && holdings.version() < last->version)
      notify(seat, make_frame(MessageKind::kCommit, said_again(*last)));
    Member& member = membership_.at(seat.peer);
    member.stepped = holdings.stepped();
    if (holdings.stepped() > 0) audit_.say(seat, holdings.stepped(), holdings.state_digest());
    if (seat.stage.value == 0)
      sources_[seat.peer] = {.wanted = holdings.wanted(), .granted = holdings.leased()};
  }
  for (const StageSpec& stage : shape_.stages)
    if (last && !ended_) compare_states(stage.stage, last->version);
}

wire::Commit Coordinator::Impl::said_again(const CommitRecord& record) const {
  wire::Commit commit;
  commit.set_step(record.step);
  commit.set_skipped(record.skipped);
  commit.set_again(true);
  for (std::uint32_t group = 0; group < record.group_digests.size(); ++group) {
    wire::GroupDigest* digest = commit.add_groups();
    digest->set_group(group);
    digest->set_digest(record.group_digests[group]);
  }
  if (!record.skipped) {
    const StepScalars scalars =
        step_scalars(options_.config.optimizer, record.step, options_.config.run.steps,
                     record.updates - 1, record.gradient_norm);
    commit.set_bias_correction1(scalars.bias_correction1);
    commit.set_bias_correction2(scalars.bias_correction2);
  }
  commit.set_learning_rate(record.learning_rate);
  commit.set_clip_scale(record.clip_scale);
  commit.set_loss(record.loss);
  return commit;
}

// The phase was open before: it goes on with the codecs it had, and with what is in its peers'
// sums. What was acknowledged counts before what was only said; of two that say the same index the
// first keeps it. What nobody has is leased anew.
void Coordinator::Impl::collect_phase(wire::OpenPhase& open) {
  const Phase phase = from_wire(open.phase());
  std::vector<std::pair<Seat, const wire::PhaseHoldings*>> holders;
  for (const auto& [seat, holdings] : resumed_)
    for (const wire::PhaseHoldings& held : holdings.phases())
      if (from_wire(held.phase()) == phase && held.version() == open.version() && serves(seat))
        holders.emplace_back(seat, &held);
  if (holders.empty()) return;
  *open.mutable_codecs() = holders.front().second->codecs();
  ledger_.had_been_leased(phase);
  const auto take = [&](const Seat& seat, const wire::Contribution& contribution) {
    const Verdict verdict = ledger_.collect(phase, seat.stage, contribution.index(), seat);
    if (verdict == Verdict::kAccepted && seat.stage.value + 1U == shape_.stages.size())
      ledger_.record_loss(phase, contribution.index(), contribution.loss_sum());
    return verdict != Verdict::kRefused;
  };
  std::set<Seat> wrong;
  for (const auto& [seat, held] : holders)
    for (const wire::Contribution& contribution : held->acknowledged())
      if (!take(seat, contribution)) wrong.insert(seat);
  for (const auto& [seat, held] : holders) {
    wire::ReportAck ack;
    *ack.mutable_phase() = open.phase();
    for (const wire::Contribution& contribution : held->reported())
      take(seat, contribution) ? ack.add_accepted(contribution.index())
                               : ack.add_refused(contribution.index());
    notify(seat, make_frame(MessageKind::kReportAck, ack));
  }
  for (const Seat& seat : wrong)
    runtime_.post([weak = weak(), seat] {
      if (auto self = weak.lock()) (*self)->fence(seat, "what it holds is another's");
    });
}

// ---- The end of a reign -------------------------------------------------------------------------

void Coordinator::Impl::name_coordinators(wire::Welcome& welcome) const {
  for (const std::string& address : options_.config.net.standby) welcome.add_coordinators(address);
}

// A peer says that another coordinator came after this one: the journal knows.
void Coordinator::Impl::check_reign() {
  const auto term = journal_.term();
  if (!term ? term.error().code == ErrorCode::kRefused : *term != term_.value)
    step_down(term ? fmt::format("the journal is at term {}, this is {}", *term, term_.value)
                   : term.error().what);
}

void Coordinator::Impl::journal_failed(const Error& error) {
  // Another coordinator has the run now; its peers are not ours to send away.
  if (error.code == ErrorCode::kRefused) return step_down(error.what);
  fail_run("the journal can't be written: " + error.what);
}

void Coordinator::Impl::step_down(const std::string& why) {
  if (std::exchange(ended_, true)) return;
  state_ = State::kFailed;
  sentence_ = "another coordinator has taken over: " + why;
  log(LogLevel::kWarn, "{}", sentence_);
  runtime_.post([weak = weak()] {
    auto self = weak.lock();
    if (!self) return;
    (*self)->network_.stop_listening();
    (*self)->sessions_.close_all();
    (*self)->on_finished_({kDeposed, (*self)->sentence_});
  });
}

}  // namespace swarmline
