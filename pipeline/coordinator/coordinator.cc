#include "pipeline/coordinator/coordinator.h"

#include <utility>

#include "base/check.h"
#include "base/limits.h"
#include "base/log.h"
#include "pipeline/coordinator/coordinator_impl.h"
#include "pipeline/protocol/knobs.h"

namespace swarmline {

namespace {
// Of what a peer says of itself.
constexpr std::size_t kTextBytesMax = 1024;

}  // namespace

SequenceOptions Coordinator::Impl::sequence_from(std::uint64_t version) const {
  return {.steps = options_.config.run.steps,
          .delay = options_.config.pipeline.delay,
          .eval_every_steps = options_.config.eval.every_steps,
          .eval = options_.eval_sequences > 0,
          .begin = version};
}

Coordinator::Impl::Impl(Runtime& runtime, Network& network, Journal& journal, CheckpointSink& sink,
                        CoordinatorOptions options, std::function<void(RunOutcome)> on_finished,
                        Again again, std::function<void(Again)> on_again)
    : runtime_(runtime),
      network_(network),
      journal_(journal),
      events_(runtime, journal_, options.log_line),
      sink_(sink),
      options_(std::move(options)),
      shape_(options_),
      on_finished_(std::move(on_finished)),
      again_(std::move(again)),
      on_again_(std::move(on_again)),
      membership_(options_.config.pipeline.peers),
      detector_(options_.config.net, options_.config.wiring.hop_timeout_seconds),
      outbox_(sessions_),
      sequence_(sequence_from(0)),
      stats_(options_.config.pipeline.stages),
      balancer_(options_.config, options_.model, shape_.stages),
      boundaries_(options_.config, std::uint64_t{options_.config.batch.microbatch} *
                                       options_.config.batch.sequence *
                                       options_.model.hidden_width()),
      alive_(std::make_shared<Impl*>(this)) {}

// Sessions and their channels hold each other until the connection has closed, which may be after
// us.
Coordinator::Impl::~Impl() {
  alive_.reset();
}

Result<Address> Coordinator::Impl::start() {
  auto bound = listen();
  if (!bound) return bound;
  detector_.begin(runtime_.now());
  SWARMLINE_TRY(open_journal());
  watch();
  return bound;
}

void Coordinator::Impl::start_again() {
  if (auto bound = start(); !bound) on_finished_({1, bound.error().what});
}

// ---- Sessions -----------------------------------------------------------------------------------

void Coordinator::Impl::accept(std::shared_ptr<Connection> connection) {
  auto session = std::make_shared<Session>();
  session->channel = RpcChannel::make(runtime_, std::move(connection));
  session->channel->start({
      .on_message =
          [weak = weak(), session](Frame frame) {
            if (auto self = weak.lock()) (*self)->on_message(session, frame);
          },
      .on_request =
          [weak = weak(), session](Frame frame, RpcChannel::Respond respond) {
            if (auto self = weak.lock()) (*self)->on_request(session, frame, respond);
          },
      .on_closed =
          [weak = weak(), session](Error error) {
            if (auto self = weak.lock()) (*self)->on_closed(session, error);
          },
  });
  sessions_.add(session);
}

void Coordinator::Impl::on_closed(const SessionPtr& session, const Error& error) {
  sessions_.closed(session);
  if (session->seat.peer.value == 0 || ended_ || state_ == State::kFailed) return;
  if (!membership_.is_current(session->seat) || awaited_again(*session)) return;
  if (may_begin_again() && is_last_of_its_stage(session->seat))
    return doubt(session->seat, error.what);
  fence(session->seat, error.what);
}

void Coordinator::Impl::on_request(const SessionPtr& session, const Frame& frame,
                                   const RpcChannel::Respond& respond) {
  if (begins_again_) return session->channel->close();
  const bool shows =
      kind_of(frame) == MessageKind::kStatusRequest || kind_of(frame) == MessageKind::kStopRequest;
  if (ended_ && !shows)
    return respond(fail(ErrorCode::kRefused, "the run has ended: " + sentence_));
  switch (kind_of(frame)) {
    case MessageKind::kHello:
      if (finding_) return hold_hello(session, frame, respond);  // it says the era
      return on_hello(session, frame, respond);
    case MessageKind::kClaim:
      if (waits_for_collecting(
              session, [this, session, frame, respond] { on_request(session, frame, respond); }))
        return;
      return on_claim(session, frame, respond);
    case MessageKind::kCheckpointPiece:
      return on_piece(session, frame, respond);
    case MessageKind::kStatusRequest: {
      wire::StatusReply reply;
      reply.set_json(status_json());
      return respond(make_frame(MessageKind::kStatusReply, reply));
    }
    case MessageKind::kStopRequest: {
      auto stop = parse<wire::StopRequest>(frame);
      if (!stop) return respond(std::unexpected(stop.error()));
      wire::StopReply reply;
      reply.set_what(stop->now() ? "stopping at once"
                                 : "finishing the open step, then writing a checkpoint");
      respond(make_frame(MessageKind::kStopReply, reply));
      runtime_.post([weak = weak(), now = stop->now()] {
        if (auto self = weak.lock()) (*self)->request_stop(now);
      });
      return;
    }
    default:
      return respond(fail(ErrorCode::kRefused, "a coordinator does not answer that"));
  }
}

void Coordinator::Impl::on_hello(const SessionPtr& session, const Frame& frame,
                                 const RpcChannel::Respond& respond) {
  auto hello = parse<wire::Hello>(frame);
  if (!hello) return respond(std::unexpected(hello.error()));
  if (session->seat.peer.value != 0)
    return respond(fail(ErrorCode::kRefused, "this connection has a seat already"));
  if (hello->name().size() > kTextBytesMax || hello->address().size() > kTextBytesMax ||
      hello->device().size() > kTextBytesMax)
    return respond(
        fail(ErrorCode::kRefused,
             fmt::format("its name, address or device has more than {} bytes", kTextBytesMax)));
  if (hello->protocol() != kProtocolVersion)
    return respond(fail(
        ErrorCode::kRefused,
        fmt::format("it speaks protocol {}, this run speaks {}: use the same version of swarmline",
                    hello->protocol(), kProtocolVersion)));
  if (hello->run_id() == options_.run_id && hello->term() > term_.value) {
    respond(fail(ErrorCode::kPeerGone, "it knows of another coordinator"));
    return check_reign();
  }
  if (collecting_ && std::exchange(collecting_->heard_nobody, false)) arm_collect_deadline();
  if (resumes(*hello)) return resume_seat(session, *hello, respond);
  // About to end: then it is told so; or it is needed, if the run goes back.
  if (state_ != State::kWaiting && state_ != State::kTraining && state_ != State::kCollecting &&
      !is_heir(*hello))
    return hold_hello(session, frame, respond);
  // A new connection of a peer whose old one nobody has seen end.
  if (const Seat before = from_wire(hello->previous());
      membership_.is_current(before) && membership_.is_same(membership_.at(before.peer), *hello)) {
    if (may_begin_again() && is_last_of_its_stage(before)) {
      session->channel->close();  // with the others it finds its seat again
      return begin_again(
          {.heard_nobody = false,
           .why = fmt::format("{}, the last of its stage, came back over a new connection",
                              to_string(before))});
    }
    fence(before, "it came back over a new connection");
    if (ended_) return respond(fail(ErrorCode::kRefused, "the run has ended: " + sentence_));
  }
  auto seat = membership_.join(*hello, place(*hello));
  if (!seat) return respond(std::unexpected(seat.error()));
  sessions_.seat(session, *seat);
  detector_.watch(*seat, runtime_.now());
  if (auto kept = journal_.record_seat({.seat = *seat,
                                        .address = hello->address(),
                                        .state = state_ == State::kWaiting ? "active" : "joining"});
      !kept)
    return journal_failed(kept.error());
  event("peer_joined", fmt::format("{} at {}", to_string(*seat), hello->address()));

  wire::Welcome welcome;
  welcome.set_term(term_.value);
  welcome.set_era(era_.value);
  welcome.set_run_id(options_.run_id);
  welcome.set_config_toml(options_.config_toml);
  welcome.set_vocab(options_.model.shape.vocab);
  *welcome.mutable_seat() = to_wire(*seat);
  for (const StageSpec& stage : shape_.stages) {
    wire::StageCut* cut = welcome.add_cuts();
    cut->set_first_layer(stage.first_layer);
    cut->set_last_layer(stage.last_layer);
  }
  welcome.set_joining(state_ != State::kWaiting);
  if (state_ == State::kWaiting) welcome.set_version(beginning_.version);
  welcome.set_keeps_followed(keeps_followed(*hello, *seat));
  welcome.set_heartbeat_seconds(options_.config.net.heartbeat_seconds);
  name_coordinators(welcome);
  respond(make_frame(MessageKind::kWelcome, welcome));
  if (welcome.keeps_followed()) follow_on(*seat, hello->followed().version());
}

void Coordinator::Impl::on_message(const SessionPtr& session, const Frame& frame) {
  if (session->seat.peer.value == 0 || ended_) return;  // tools send requests only
  detector_.heard(session->seat, runtime_.now());
  if (kind_of(frame) != MessageKind::kHeartbeat && kind_of(frame) != MessageKind::kGoodbye &&
      waits_for_collecting(session, [this, session, frame] { on_message(session, frame); }))
    return;
  if (on_shadow_message(session, frame)) return;
  auto with = [&](auto parsed, auto handler) {
    if (!parsed) {
      log(LogLevel::kWarn, "closing {}: {}", to_string(session->seat), parsed.error().what);
      return session->channel->close();
    }
    if (from_wire(parsed->seat()) != session->seat || !membership_.is_current(session->seat))
      return;
    handler(*parsed);
  };
  switch (kind_of(frame)) {
    case MessageKind::kHeartbeat:
      return with(parse<wire::Heartbeat>(frame), [&](const auto& m) {
        detector_.heartbeat(session->seat, m.jobs_done(), m.jobs_waiting(), runtime_.now());
        membership_.heartbeat(m);
        session->channel->notify(make_frame(MessageKind::kHeartbeatAck, wire::HeartbeatAck()));
        if (membership_.at(session->seat.peer).draining) release_drained();
      });
    case MessageKind::kLeave:
      return with(parse<wire::Leave>(frame), [&](const auto&) { on_leave(session->seat); });
    case MessageKind::kWantState:
      return with(parse<wire::WantState>(frame),
                  [&](const auto&) { on_want_state(session->seat); });
    case MessageKind::kPieceRequest:
      return with(parse<wire::PieceRequest>(frame),
                  [&](const auto& m) { on_piece_request(session, m); });
    case MessageKind::kStateFrozen:
      return with(parse<wire::StateFrozen>(frame), [&](const auto& m) { on_state_frozen(m); });
    case MessageKind::kReleaseClaim:
      return with(parse<wire::ReleaseClaim>(frame), [&](const auto& m) { on_release_claim(m); });
    case MessageKind::kRoundBroken:
      return with(parse<wire::RoundBroken>(frame), [&](const auto& m) { on_round_broken(m); });
    case MessageKind::kReady:
      return with(parse<wire::Ready>(frame), [&](const auto& m) { on_ready(session, m); });
    case MessageKind::kWantLeases:
      return with(parse<wire::WantLeases>(frame), [&](const auto& m) { on_want_leases(m); });
    case MessageKind::kReport:
      return with(parse<wire::Report>(frame), [&](const auto& m) { on_report(m); });
    case MessageKind::kComputeFailed:
      return with(parse<wire::ComputeFailed>(frame), [&](const auto& m) { on_compute_failed(m); });
    case MessageKind::kStallReport:
      return with(parse<wire::StallReport>(frame), [&](const auto& m) { on_stall(m); });
    case MessageKind::kReduced:
      return with(parse<wire::Reduced>(frame), [&](const auto& m) { on_reduced(m); });
    case MessageKind::kStepped:
      return with(parse<wire::Stepped>(frame), [&](const auto& m) { on_stepped(m); });
    case MessageKind::kSealMismatch:
      return with(parse<wire::SealMismatch>(frame),
                  [&](const auto& m) { on_seal_mismatch(session->seat, m); });
    case MessageKind::kGoodbye:
      return with(parse<wire::Goodbye>(frame), [&](const wire::Goodbye& m) {
        const std::string reason = m.reason().substr(0, kTextBytesMax);
        fence(session->seat, reason.empty() ? "it left" : reason,
              reason.empty() ? Goes::kLeft : Goes::kFailed);
      });
    default:
      log(LogLevel::kWarn, "{} sent a {}", to_string(session->seat), to_string(kind_of(frame)));
  }
}

void Coordinator::Impl::on_ready(const SessionPtr& session, const wire::Ready& ready) {
  Member& member = membership_.at(session->seat.peer);
  if (member.state == MemberState::kFollowing) return on_follower_ready(session->seat, ready);
  if (member.state != MemberState::kBuilding || ready.version() != beginning_.version ||
      state_ != State::kWaiting) {
    log(LogLevel::kWarn, "closing {}: it is ready twice, or with version {}",
        to_string(session->seat), ready.version());
    return session->channel->close();
  }
  member.state = MemberState::kReady;
  detector_.works_from(session->seat, runtime_.now());
  member.stepped = beginning_.version;
  expected_.erase(session->seat.peer);
  audit_.say(session->seat, ready.version(), ready.state_digest());
  if (const auto first = audit_.first_to_differ(session->seat, ready.version()))
    return fail_run(fmt::format("{} and {} start from different parameters of stage {}",
                                to_string(*first), to_string(session->seat),
                                session->seat.stage.value));
  start_if_formed();
}

void Coordinator::Impl::start_if_formed() {
  if (state_ != State::kWaiting || finding_) return;
  if (!may_start()) return fill_stages();
  if (auto kept = journal_.record_started(era_); !kept) return journal_failed(kept.error());
  if (!trained_ && options_.config.checkpoint.every_steps == 0 &&
      options_.config.balance.shadows == "0")
    event(
        "unprotected",
        "checkpoint.every_steps and balance.shadows are 0: a stage that loses all its peers takes "
        "the run back to where it began",
        LogLevel::kWarn);
  state_ = State::kTraining;
  trained_ = true;
  send_membership();
  stats_.on_training_started(runtime_.now());
  event("start", fmt::format("{} peers in {} stages, version {}", sessions_.seated().size(),
                             shape_.stages.size(), beginning_.version));
  advance();
}

void Coordinator::Impl::send_membership() {
  const std::set<Seat> changed = membership_.refresh_views();
  for (const Seat& seat : changed)
    notify(seat, make_frame(MessageKind::kMembership, membership_.view_for(seat)));
  for (const auto& [shadow, entry] : shadows_.all())
    if (entry.follows &&
        std::ranges::any_of(changed, [&](const Seat& seat) { return seat.stage == shadow.stage; }))
      notify(shadow, make_frame(MessageKind::kMembership, membership_.view_for(shadow)));
}

// ---- The order of a run
// ----------------------------------------------------------------------------------------------

void Coordinator::Impl::advance() {
  if (ended_ || state_ == State::kFailed || state_ == State::kWaiting || collecting_) return;
  for (const RunSequence::Opening& opening : sequence_.take_openings()) open_phase(opening);
  pump_leases();
  if (!sequence_.finished() || checkpoint_ || !emptied_.empty()) return;
  const std::uint64_t version = sequence_.committed();
  if (!all_stepped(version)) return;
  if (saved_version_ != version) return begin_checkpoint(version, true);
  end(0, sequence_.draining() && version < options_.config.run.steps
             ? fmt::format("drained after step {} of {}", version, options_.config.run.steps)
             : fmt::format("finished {} steps", version));
}

void Coordinator::Impl::open_phase(const RunSequence::Opening& opening) {
  const std::uint32_t indices = shape_.microbatches_of(opening.phase.kind);
  ledger_.open(opening.phase, opening.version, indices,
               static_cast<std::uint32_t>(shape_.stages.size()));
  wire::OpenPhase open;
  *open.mutable_phase() = to_wire(opening.phase);
  open.set_version(opening.version.value);
  boundaries_.fill(open);
  open.set_microbatches(indices);
  open.set_opening(first_phase_epoch(term_).value);
  if (!resumed_.empty()) collect_phase(open);
  broadcast(make_frame(MessageKind::kOpenPhase, open));
  opened_[opening.phase] = open;
}

void Coordinator::Impl::request_stop(bool now) {
  if (ended_) return;
  if (now) return end(130, "interrupted");
  if (finding_) return end(0, "stopped before the run went back to a checkpoint");
  if (state_ == State::kWaiting)
    return end(0, fmt::format("stopped before step {}", beginning_.version));
  if (state_ != State::kTraining && state_ != State::kCollecting) return;
  if (auto kept = journal_.record_stopping(); !kept) return journal_failed(kept.error());
  if (state_ == State::kCollecting) return sequence_.drain();
  state_ = State::kDraining;
  event("drain", fmt::format("after step {}", sequence_.committed()));
  sequence_.drain();
  advance();
}

void Coordinator::Impl::fail_run(const std::string& sentence) {
  if (ended_ || state_ == State::kFailed) return;
  state_ = State::kFailed;
  log(LogLevel::kError, "{}", sentence);
  event("failed", sentence);
  if (checkpoint_) sink_.abandon();
  end(1, sentence);
}

void Coordinator::Impl::end(int exit_code, const std::string& sentence) {
  if (std::exchange(ended_, true)) return;
  if (exit_code == 0) state_ = State::kDone;
  sentence_ = sentence;
  event("end", sentence);
  if (auto kept = journal_.record_ended(); !kept)
    log(LogLevel::kError, "the journal can't be written: {}", kept.error().what);
  wire::Shutdown shutdown;
  shutdown.set_exit_code(static_cast<std::uint32_t>(exit_code));
  shutdown.set_reason(sentence);
  broadcast(make_frame(MessageKind::kShutdown, shutdown));
  for (const auto& hello : std::exchange(held_hellos_, {})) hello();  // they are told so, too
  runtime_.call_after(knobs().farewell_time, [weak = weak(), exit_code, sentence] {
    auto self = weak.lock();
    if (!self) return;
    (*self)->network_.stop_listening();
    (*self)->sessions_.close_all();
    (*self)->on_finished_({exit_code, sentence});
  });
}

void Coordinator::Impl::broadcast(const Frame& frame) {
  const MessageKind kind = kind_of(frame);
  for (const auto& [peer, session] : sessions_.seated())
    if (serves(session->seat) || kind == MessageKind::kShutdown ||
        (follows(session->seat) && kind == MessageKind::kPeerLost))
      session->channel->notify(frame);
}

// To a peer, or to its shadow of another stage.
void Coordinator::Impl::notify(const Seat& seat, Frame frame) {
  outbox_.send(seat, std::move(frame));
  outbox_.flush();
}

void Coordinator::Impl::event(const std::string& kind, const std::string& detail, LogLevel level) {
  events_.event(kind, detail, level);
}

std::uint64_t Coordinator::Impl::control_bytes() const {
  const std::uint64_t bytes = sessions_.bytes();
  return bytes - std::min(bytes, checkpoint_bytes_);
}

Coordinator::Coordinator(Runtime& runtime, Network& network, Journal& journal, CheckpointSink& sink,
                         CoordinatorOptions options, std::function<void(RunOutcome)> on_finished)
    : make_impl_([=, this, &runtime, &network, &journal, &sink](Again again) {
        return std::make_unique<Impl>(runtime, network, journal, sink, options, on_finished,
                                      std::move(again), [this](const Again& next) {
                                        impl_.reset();
                                        impl_ = make_impl_(next);
                                        impl_->start_again();
                                      });
      }),
      impl_(make_impl_({})) {}
Coordinator::~Coordinator() = default;

Result<Address> Coordinator::start() {
  return impl_->start();
}
Result<bool> Coordinator::has_ended(Journal& journal) {
  return RunJournal::has_ended(journal);
}
bool Coordinator::takes_peers() const {
  return impl_->takes_peers();
}
void Coordinator::request_stop(bool now) {
  impl_->request_stop(now);
}
std::string Coordinator::status_json() const {
  return impl_->status_json();
}
void Coordinator::check_invariants() const {
  impl_->check_invariants();
}
bool Coordinator::serves(const Seat& seat) const {
  return impl_->serves(seat);
}
std::vector<Seat> Coordinator::shadow_hosts(StageId stage) const {
  return impl_->shadow_hosts(stage);
}

}  // namespace swarmline
