#include "pipeline/coordinator/reign.h"

#include <utility>

#include <fmt/format.h>

#include "base/log.h"
#include "base/marks.h"
#include "base/printable.h"
#include "pipeline/coordinator/members/link_scope.h"
#include "pipeline/protocol/knobs.h"
#include "pipeline/protocol/message_bounds.h"
#include "pipeline/protocol/message_kinds.h"

namespace swarmline {

Reign::Reign(const CoordinatorParts::Doors& doors, CoordinatorOptions options, SelfRestart begun_so,
             RunEnds ends)
    : network_(doors.network),
      options_(std::move(options)),
      begun_so_(begun_so),
      admin_(options_.admin_secret),
      parts_(doors, options_,
             {.settle = [this] { settling_.settle(); },
              .may_begin_again = [this] { return settling_.may_begin_again(); },
              .cut_off = [this](const Seat& seat) { return settling_.is_cut_off(seat); },
              .patience = [this] { return settling_.patience(); }}),
      settling_(parts_, doors.network, begun_so, std::move(ends)) {}

Reign::~Reign() {
  parts_.alarms.drop();
  parts_.sessions.close_all();  // before what nobody has answered would be refused
}

// ---- The beginning ------------------------------------------------------------------------------

Result<Address> Reign::start() {
  auto bound = listen();
  if (!bound) return bound;
  parts_.detector.begin(parts_.alarms.now());
  SWARMLINE_TRY(settling_.open_journal(begun_so_.heard_nobody));
  parts_.writer.flush();
  look();
  settling_.settle();
  return bound;
}

// Peers know the address that it had before.
Result<Address> Reign::listen() {
  auto wanted = parse_address(options_.config.net.listen);
  if (!wanted) return wanted;
  auto before = parts_.journal.address();
  if (!before) return std::unexpected(before.error());
  Result<Address> bound = swarmline::fail(ErrorCode::kNotFound, "");
  const auto try_at = [&](const Address& address) {
    bound = network_.listen(
        address, parts_.alarms.then_settle([this](std::shared_ptr<Connection> connection) {
          accept(std::move(connection));
        }));
    return bound.has_value();
  };
  const auto known = *before ? parse_address(**before) : Result<Address>(*wanted);
  if (wanted->port != 0 || !known || !try_at(*known)) {
    const std::string taken = bound ? "" : bound.error().what;
    if (!try_at(*wanted)) return bound;
    if (*before && known && wanted->port == 0) say_moved(*known, *bound, taken);
  }
  parts_.journal.record_address(to_string(*bound));
  return bound;
}

// Better elsewhere than not at all: the peers may be gone, too.
void Reign::say_moved(const Address& from, const Address& to, const std::string& why) {
  const auto run = parts_.journal.read();
  if (!run || !run->has_trained()) return;  // nobody looks for it
  parts_.events.event(
      "moved",
      fmt::format("this coordinator listens on {}, the one before listened on {} ({}): peers that "
                  "look for it there give up after {:.0f} s and have to be started again",
                  to_string(to), to_string(from), why,
                  options_.config.net.coordinator_patience_seconds),
      LogLevel::kWarn);
}

// ---- Sessions -----------------------------------------------------------------------------------

void Reign::accept(std::shared_ptr<Connection> connection) {
  auto session = std::make_shared<Session>();
  session->channel = RpcChannel::make(parts_.alarms.runtime(), std::move(connection));
  session->channel->start({.on_message = parts_.alarms.then_settle(
                               [this, session](const Frame& frame) { on_message(session, frame); }),
                           .on_request = parts_.alarms.then_settle(
                               [this, session](const Frame& frame, RpcChannel::Respond respond) {
                                 on_request(session, frame, std::move(respond));
                               }),
                           .on_closed = parts_.alarms.then_settle(
                               [this, session](const Error& error) { on_closed(session, error); }),
                           .stranger = bounds_before_hello()});
  session->heard = parts_.alarms.now();
  parts_.sessions.add(session);
}

void Reign::on_closed(const SessionPtr& session, const Error& error) {
  parts_.sessions.closed(session);
  if (!parts_.life.is_over()) parts_.relays.on_closed(session);
  if (!session->has_seat() || parts_.life.is_over() || !parts_.members.is_current(session->seat) ||
      parts_.recovery.is_awaited_again(*session))
    return;
  if (settling_.is_cut_off(session->seat)) return parts_.probe.probe(session->seat, error.what);
  // Nobody knows which end it is: a silence tells, after which it is lost, or this end is cut off.
  if (error.code == ErrorCode::kDeadline &&
      (parts_.life.is_running() || parts_.life.is<life::Recovering>()))
    return SWARMLINE_MARK("reign.unacknowledged");
  parts_.rulings.lose(session->seat, error.what);
}

void Reign::on_request(const SessionPtr& session, const Frame& frame, RpcChannel::Respond respond) {
  session->heard = parts_.alarms.now();
  const MessageKind kind = kind_of(frame);
  if (parts_.life.is<life::RestartingItself>()) return parts_.outbox.close(session);
  if (link_is_of_a_former_key(session->channel->connection(), options_.is_run_key))
    return parts_.outbox.close(session);
  if (!link_may_ask(session->channel->connection().admitted_as(), kind)) {
    SWARMLINE_MARK("reign.not_invited_for_that");
    if (const auto times = not_invited_lines_.happened(parts_.alarms.now()))
      log(LogLevel::kWarn, "refused a {} from {}: its invite is not for that ({} such)",
          to_string(kind), session->channel->connection().remote(), times);
    return parts_.outbox.respond(
        std::move(respond),
        swarmline::fail(ErrorCode::kRefused, "this invite is not for that; ask for another one"));
  }
  const bool shows = kind == MessageKind::kStatusRequest || kind == MessageKind::kStopRequest ||
                     kind == MessageKind::kChallengeRequest || kind == kTrialRequest;
  if (parts_.life.is<life::Ended>() &&
      (kind == MessageKind::kHello || kind == MessageKind::kRelayHello))
    return parts_.arrivals.tell_the_end(session, respond, settling_.shutdown());
  if (parts_.life.is_over() && !shows)
    return parts_.outbox.respond(
        std::move(respond),
        swarmline::fail(ErrorCode::kRefused, "the run has ended: " + parts_.life.sentence()));
  if (kind == kTrialRequest) return parts_.trial.on_request(session, frame, std::move(respond));
  switch (kind) {
    case MessageKind::kHello:
      return parts_.arrivals.on_hello(session, frame, std::move(respond));
    case MessageKind::kRelayHello:
      return parts_.relays.on_hello(session, frame, std::move(respond));
    case MessageKind::kClaim:
      if (parts_.recovery.hold(session, frame.wire_bytes(), [this, session, frame, respond] {
            on_request(session, frame, respond);
          }))
        return;
      return parts_.intake.on_claim(session->seat, frame, respond);
    case MessageKind::kCheckpointPiece:
      count_sent(session->seat, frame.payload_bytes());
      return parts_.checkpointer.on_piece(session->seat, frame, respond);
    case MessageKind::kStatusRequest:
      return on_status_request(session, frame, std::move(respond));
    case MessageKind::kChallengeRequest:
      return parts_.outbox.respond_freely(
          std::move(respond), make_frame(MessageKind::kChallengeReply, admin_.challenge(session)));
    case MessageKind::kStopRequest:
      return on_stop_request(session, frame, std::move(respond));
    case MessageKind::kCheckpointRequest:
      return on_checkpoint_request(session, frame, std::move(respond));
    default:
      return parts_.outbox.respond(
          std::move(respond),
          swarmline::fail(ErrorCode::kRefused, "a coordinator does not answer that"));
  }
}

// Whoever reaches the port may look. A run of so many peers that its status is too long for a
// message goes on without one.
void Reign::on_status_request(const SessionPtr& session, const Frame& frame,
                              RpcChannel::Respond respond) {
  const auto request = parse<wire::StatusRequest>(frame);
  if (request) admin_.proves(session, MessageKind::kStatusRequest, *request);
  wire::StatusReply reply;
  reply.set_json(recent_status());
  if (reply.ByteSizeLong() + kFrameHeaderBytes > Limits::status_bytes_max) {
    SWARMLINE_MARK("reign.status_too_long");
    return parts_.outbox.respond_freely(
        std::move(respond),
        swarmline::fail(ErrorCode::kRefused,
                        fmt::format("the status has {} bytes, more than the {} that are sent; "
                                    "log.jsonl in the run folder has the steps",
                                    reply.json().size(), Limits::status_bytes_max)));
  }
  parts_.outbox.respond_freely(std::move(respond), make_frame(MessageKind::kStatusReply, reply));
}

template <typename Request>
Result<void> Reign::may_steer(const SessionPtr& session, MessageKind kind,
                              const Result<Request>& request) {
  if (!request) return std::unexpected(request.error());
  if (link_may_steer(session->channel->connection().admitted_as())) return {};
  return admin_.check(session, kind, *request, parts_.alarms.now());
}

void Reign::on_stop_request(const SessionPtr& session, const Frame& frame,
                            RpcChannel::Respond respond) {
  const auto stop = parse<wire::StopRequest>(frame);
  const Result<void> allowed = may_steer(session, MessageKind::kStopRequest, stop);
  if (!allowed)
    return parts_.outbox.respond_freely(std::move(respond), std::unexpected(allowed.error()));
  wire::StopReply reply;
  reply.set_what(stop->now() ? "stopping at once"
                             : "finishing the open step, then writing a checkpoint");
  parts_.outbox.respond_freely(std::move(respond), make_frame(MessageKind::kStopReply, reply));
  parts_.alarms.post([this, now = stop->now()] { settling_.request_stop(now); });
}

void Reign::on_checkpoint_request(const SessionPtr& session, const Frame& frame,
                                  RpcChannel::Respond respond) {
  const auto request = parse<wire::CheckpointRequest>(frame);
  const Result<void> allowed = may_steer(session, MessageKind::kCheckpointRequest, request);
  const Result<std::string> asked = !allowed ? Result<std::string>(std::unexpected(allowed.error()))
                                             : settling_.request_checkpoint();
  if (!asked)
    return parts_.outbox.respond_freely(std::move(respond), std::unexpected(asked.error()));
  wire::CheckpointReply reply;
  reply.set_what(*asked);
  parts_.outbox.respond_freely(std::move(respond),
                               make_frame(MessageKind::kCheckpointReply, reply));
}

// ---- Messages -----------------------------------------------------------------------------------

void Reign::on_message(const SessionPtr& session, const Frame& frame) {
  const MessageKind kind = kind_of(frame);
  if (parts_.life.is_over()) return;
  if (parts_.relays.has(session)) return parts_.relays.on_message(session, frame);
  if (!session->has_seat()) {  // tools send requests only
    // Its Hello waits for the journal, and says nothing of what its peer did after it.
    if (session->said_hello && kind != MessageKind::kHeartbeat &&
        parts_.recovery.hold(session, frame.wire_bytes(),
                             [this, session, frame] { on_message(session, frame); }))
      SWARMLINE_MARK("reign.held_before_its_seat");
    return;
  }
  parts_.detector.heard(session->seat, parts_.alarms.now());
  if (kind != MessageKind::kHeartbeat && kind != MessageKind::kGoodbye &&
      parts_.recovery.hold(session, frame.wire_bytes(),
                           [this, session, frame] { on_message(session, frame); }))
    return;
  const Seat seat = session->seat;
  const auto parsed = [&]<typename Message>(std::type_identity<Message>, auto&& handle) {
    const auto message = parse<Message>(frame);
    if (message) return handle(*message);
    log(LogLevel::kWarn, "closing {}: {}", to_string(seat), message.error().what);
    parts_.outbox.close(session);
  };
  const auto with = [&](auto type, auto&& handle) {
    parsed(type, [&](const auto& m) {
      if (from_wire(m.seat()) == seat && parts_.members.is_current(seat)) handle(m);
    });
  };
  // What only who serves its stage can say: others are no members of what a step is sealed with.
  const auto with_serving = [&](auto type, auto&& handle) {
    with(type, [&](const auto& m) {
      if (parts_.members.serves(seat)) return handle(m);
      SWARMLINE_MARK("reign.does_not_serve_yet");
      log(LogLevel::kWarn, "{} sent a {} and does not serve its stage yet", to_string(seat),
          to_string(kind));
    });
  };
  // What a shadow says as well as a seat, each under its own name.
  const auto with_either = [&](auto type, auto&& handle) {
    parsed(type, [&](const auto& m) {
      const Seat from = from_wire(m.seat());
      const bool of_shadow = from.peer == seat.peer && parts_.shadows.has(from);
      if (!of_shadow && (from != seat || !parts_.members.is_current(seat))) return;
      handle(from, m);
      if (of_shadow) parts_.takeovers.wake();
    });
  };
  switch (kind) {
    case MessageKind::kHeartbeat:
      return with(std::type_identity<wire::Heartbeat>(), [&](const auto& m) {
        parts_.detector.heartbeat(seat, m.jobs_done(), m.jobs_waiting(), parts_.alarms.now());
        parts_.detector.moved(seat, m.moved_bytes(), parts_.alarms.now());
        parts_.members.heartbeat(m);
        answer_heartbeat(session, m);
        if (parts_.members.at(seat.peer).draining) parts_.relocation.wake();
      });
    case MessageKind::kLeave:
      return with(std::type_identity<wire::Leave>(), [&](const auto& m) {
        m.at_risk() ? parts_.relocation.on_risk(seat) : on_leave(m);
      });
    case MessageKind::kWantState:
      return with_either(std::type_identity<wire::WantState>(),
                         [&](const Seat& from, const auto&) { on_want_state(from); });
    case MessageKind::kPieceRequest:
      return with(std::type_identity<wire::PieceRequest>(), [&](const auto& m) {
        parts_.checkpointer.count_bytes(parts_.beginning.on_piece_request(session, m));
      });
    case MessageKind::kStateFrozen:
      return with(std::type_identity<wire::StateFrozen>(),
                  [&](const auto& m) { parts_.states.on_frozen(m); });
    case MessageKind::kSumsFrozen:
      return with_serving(std::type_identity<wire::SumsFrozen>(),
                          [&](const auto& m) { parts_.hand_overs.on_frozen(seat, m); });
    case MessageKind::kSumsTaken:
      return with_serving(std::type_identity<wire::SumsTaken>(), [&](const auto& m) {
        if (parts_.hand_overs.on_taken(seat, m)) parts_.relocation.wake();
      });
    case MessageKind::kReleaseClaim:
      return with_serving(std::type_identity<wire::ReleaseClaim>(),
                          [&](const auto& m) { parts_.intake.on_release_claim(m); });
    case MessageKind::kRoundBroken:
      return with_serving(std::type_identity<wire::RoundBroken>(),
                          [&](const auto& m) { parts_.round.on_round_broken(m); });
    case MessageKind::kReady:
      return with_either(std::type_identity<wire::Ready>(), [&](const Seat& from, const auto& m) {
        parts_.shadows.has(from) ? on_shadow_ready(from, m) : on_ready(session, m);
      });
    case MessageKind::kWantLeases:
      return with(std::type_identity<wire::WantLeases>(), [&](const auto& m) {
        // Only it has the data.
        if (seat.stage.value == 0) parts_.leases.want(seat, m.total(), m.finished());
      });
    case MessageKind::kReport:
      return with_serving(std::type_identity<wire::Report>(), [&](const auto& m) {
        parts_.intake.on_report(m);
        parts_.stragglers.on_report(m);
        settling_.note_progress();
      });
    case MessageKind::kComputeFailed:
      return with_serving(std::type_identity<wire::ComputeFailed>(),
                          [&](const auto& m) { parts_.intake.on_compute_failed(m); });
    case MessageKind::kStallReport:
      return with_serving(std::type_identity<wire::StallReport>(),
                          [&](const auto& m) { parts_.intake.on_stall(m, parts_.alarms.now()); });
    case MessageKind::kReduced:
      return with_either(std::type_identity<wire::Reduced>(),
                         [&](const Seat& from, const auto& m) { on_reduced(from, m); });
    case MessageKind::kStepped:
      return with(std::type_identity<wire::Stepped>(), [&](const auto& m) { on_stepped(m); });
    case MessageKind::kSealMismatch:
      return with_serving(std::type_identity<wire::SealMismatch>(),
                          [&](const auto& m) { parts_.round.on_seal_mismatch(seat, m); });
    case MessageKind::kWantHashes:
      return with(std::type_identity<wire::WantHashes>(), [&](const auto& m) {
        const auto answered = parts_.data_holders.on_want_hashes(seat, m);
        if (answered) return;
        log(LogLevel::kWarn, "closing {}: {}", to_string(seat), answered.error().what);
        parts_.outbox.close(session);
      });
    case MessageKind::kCallMe:
      return with(std::type_identity<wire::CallMe>(),
                  [&](const auto& m) { parts_.reach.on_call_me(seat, m); });
    case MessageKind::kOutOfReach:
      return with(std::type_identity<wire::OutOfReach>(),
                  [&](const auto& m) { parts_.reach.on_out_of_reach(seat, m); });
    case MessageKind::kGoodbye:
      return with_either(std::type_identity<wire::Goodbye>(), [&](const Seat& from, const auto& m) {
        on_goodbye(from, printable(m.reason(), Limits::reason_bytes_max));
      });
    default:
      log(LogLevel::kWarn, "{} sent a {}", to_string(seat), to_string(kind));
  }
}

// What one that drains still holds is looked at with each heartbeat: its departure waits for them.
void Reign::answer_heartbeat(const SessionPtr& session, const wire::Heartbeat& beat) {
  const Seat seat = session->seat;
  parts_.detector.promises(seat, heartbeat_period_from(beat.period_seconds()));
  wire::HeartbeatAck ack;
  if (const auto asked = parts_.detector.asks(seat, parts_.members.at(seat.peer).draining))
    ack.set_period_seconds(to_seconds(*asked));
  ack.set_seat_certificate(parts_.arrivals.certified_anew(session));
  parts_.outbox.send_freely(session, make_frame(MessageKind::kHeartbeatAck, ack));
}

void Reign::on_want_state(const Seat& from) {
  if (parts_.shadows.has(from)) return parts_.standbys.on_want_state(from);
  const bool lacks_state = !parts_.members.serves(from) || parts_.members.serves_early(from);
  if (!parts_.life.is<life::Forming>() && lacks_state) parts_.states.want(from);
}

// Before a start it holds nothing that others lack.
void Reign::on_leave(const wire::Leave& leave) {
  const Seat seat = from_wire(leave.seat());
  if (!parts_.life.is<life::Forming>())
    return parts_.relocation.on_leave(seat, notice_from(leave.seconds()));
  SWARMLINE_MARK("reign.left_before_the_start");
  parts_.rulings.lose(seat, "it left", Departure::kLeft);
}

void Reign::on_goodbye(const Seat& from, const std::string& reason) {
  if (parts_.shadows.has(from)) return parts_.standbys.on_goodbye(from, reason);
  parts_.rulings.lose(from, reason.empty() ? "it left" : reason,
                      reason.empty() ? Departure::kLeft : Departure::kFailed);
}

void Reign::on_ready(const SessionPtr& session, const wire::Ready& ready) {
  const Seat seat = session->seat;
  Member& member = parts_.members.at(seat.peer);
  if (ready.parameters_alone()) return settling_.take_early_seat(seat, ready.version());
  if (member.state == MemberState::kEarly)
    return parts_.audit.follower_ready(seat, ready.version(), ready.state_digest());
  if (member.state == MemberState::kFollowing) {
    const auto arrival = parts_.takeovers.on_ready(seat, ready.version(), ready.state_digest());
    if (arrival == Takeovers::Arrival::kNone)
      parts_.audit.follower_ready(seat, ready.version(), ready.state_digest());
    if (arrival != Takeovers::Arrival::kTakenOver) return;
    parts_.audit.say(seat, ready.version(), ready.state_digest());
    return settling_.take_seat(seat, ready.version());
  }
  if (member.state == MemberState::kBuilding && parts_.life.is_running()) {
    SWARMLINE_MARK("reign.built_after_the_start");
    return parts_.rulings.lose(seat, "training began before it had built its stage; it joins again",
                               Departure::kMoves);
  }
  if (member.state != MemberState::kBuilding || !parts_.life.is<life::Forming>() ||
      ready.version() != parts_.beginning.version()) {
    log(LogLevel::kWarn, "closing {}: it is ready twice, or with version {}", to_string(seat),
        ready.version());
    return parts_.outbox.close(session);
  }
  parts_.members.become(seat.peer, MemberState::kReady);
  member.stepped = ready.version();
  parts_.detector.works_from(seat, parts_.alarms.now());
  parts_.gathering.ready(seat.peer);
  parts_.audit.say(seat, ready.version(), ready.state_digest());
}

void Reign::on_shadow_ready(const Seat& shadow, const wire::Ready& ready) {
  parts_.standbys.on_ready(shadow, ready.version(), ready.state_digest());
  parts_.audit.look_again(shadow.stage, ready.version());
  parts_.kept_heirs.wake();
}

// A shadow computes nothing that could be measured.
void Reign::on_reduced(const Seat& from, const wire::Reduced& reduced) {
  if (!parts_.round.on_reduced(reduced)) return;
  count_sent(from, reduced.reduce_bytes());
  if (parts_.shadows.has(from)) return;
  const wire::BoundaryBytes& boundary = reduced.boundary();
  for (const std::uint64_t bytes :
       {boundary.forward_codec(), boundary.forward_tokens(), boundary.forward_framing(),
        boundary.backward_codec(), boundary.backward_framing()})
    count_sent(from, bytes);
  parts_.stats.on_reduced(reduced);
  parts_.stragglers.on_reduced(reduced);
  parts_.members.measured(from, reduced.busy_ns(), reduced.passes());
  parts_.boundaries.on_reduced(reduced);
}

// To other peers, or of a checkpoint to the coordinator.
void Reign::count_sent(const Seat& from, std::uint64_t bytes) {
  const auto& members = parts_.members.members();
  if (const auto member = members.find(from.peer); member != members.end())
    parts_.cost.sent(bytes, member->second.egress_price);
}

void Reign::on_stepped(const wire::Stepped& stepped) {
  const Seat seat = from_wire(stepped.seat());
  if (stepped.version() == 0 || stepped.version() > parts_.sequence.committed()) {
    SWARMLINE_MARK("reign.stepped_beyond_what_is_committed");
    return parts_.rulings.lose(
        seat, fmt::format("it says it applied step {}, which is not committed", stepped.version()),
        Departure::kRefused);
  }
  Member& member = parts_.members.at(seat.peer);
  member.stepped = std::max(member.stepped, stepped.version());
  parts_.audit.say(seat, stepped.version(), stepped.state_digest());
  parts_.standbys.look_at(seat.stage);
}

// ---- What people see ---------------------------------------------------------------------------

std::vector<Seat> Reign::shadow_hosts(StageId stage) const {
  std::vector<Seat> hosts;
  for (const Seat& shadow : parts_.shadows.ready_of(stage))
    if (const auto member = parts_.members.members().find(shadow.peer);
        member != parts_.members.members().end() && member->second.state != MemberState::kLost &&
        member->second.seat.incarnation == shadow.incarnation)
      hosts.push_back(member->second.seat);
  return hosts;
}

const std::string& Reign::recent_status() {
  const Instant now = parts_.alarms.now();
  if (shown_.empty() || now - shown_at_ >= kStatusLife) {
    SWARMLINE_MARK("reign.status_made");
    shown_ = to_json(status());
    shown_at_ = now;
  }
  return shown_;
}

RunStatus Reign::status() const {
  return status_of(parts_.status_sources(), settling_.era_sentence(), parts_.alarms.now());
}

}  // namespace swarmline
