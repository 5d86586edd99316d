#include "pipeline/coordinator/members/arrivals.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "base/limits.h"
#include "base/log.h"
#include "base/marks.h"
#include "base/printable.h"
#include "pipeline/coordinator/run/cost_meter.h"
#include "pipeline/protocol/message_bounds.h"
#include "pipeline/protocol/message_kinds.h"
#include "pipeline/protocol/protocol_version.h"
#include "pipeline/protocol/seat_proof.h"

namespace swarmline {

namespace {

// Others' texts go to logs and screens, and into each status.
Result<void> check_text(std::string_view what, std::string_view text, std::size_t bytes_max) {
  if (text.size() > bytes_max)
    return fail(ErrorCode::kRefused, fmt::format("its {} has {} bytes, at most {} are taken", what,
                                                 text.size(), bytes_max));
  if (is_printable(text)) return {};
  return fail(ErrorCode::kRefused,
              fmt::format("its {}, \"{}\", has more than printable ASCII characters", what,
                          printable(text, bytes_max)));
}

// To one that says that it still serves the stage which it was sent away from: it has not heard of
// it, and has the other one's state as a shadow yet.
Frame sent_again(const Member& before) {
  wire::Fenced fenced;
  *fenced.mutable_seat() = to_wire(before.seat);
  fenced.set_reason(fmt::format("it takes over stage {}", before.moves_to->value));
  fenced.set_takes_stage(true);
  fenced.set_stage(before.moves_to->value);
  return make_frame(MessageKind::kFenced, fenced);
}

}  // namespace

void Arrivals::on_hello(const SessionPtr& session, const Frame& frame,
                        RpcChannel::Respond respond) {
  auto hello = checked(session, frame);
  if (!hello) {
    SWARMLINE_MARK("arrivals.refused");
    refuse(session, parse<wire::Hello>(frame).value_or(wire::Hello()), respond, hello.error());
    return in_.outbox.close(session);
  }
  const std::uint64_t bytes = frame.meta.size();
  if (fresh_.size() + waiting_.size() >= kHellosMax ||
      held_bytes_ + bytes > Limits::hellos_held_bytes_max) {
    SWARMLINE_MARK("arrivals.too_many");
    return send_away(session, respond, "too many say hello");
  }
  disbelieve_unproven(*hello, session);
  session->said_hello = true;
  session->channel->connection().believe(bounds_of_peer());
  held_bytes_ += bytes;
  fresh_.push_back({.session = session,
                    .hello = std::move(*hello),
                    .respond = std::move(respond),
                    .bytes = bytes});
}

// Whoever says that it had a seat, and not what only that seat was told, is a newcomer.
void Arrivals::disbelieve_unproven(wire::Hello& hello, const SessionPtr& session) {
  if (!hello.has_previous() || hello.run_id() != in_.identity.run_id ||
      proves_seat(in_.identity.key, from_wire(hello.previous()), hello.seat_proof()))
    return;
  SWARMLINE_MARK("arrivals.unproven_seat");
  if (const auto times = unproven_lines_.happened(in_.alarms.now()))
    log(LogLevel::kWarn, "{} says that it had the seat of {}, and can't prove it ({} such)",
        session->channel->connection().remote(), to_string(from_wire(hello.previous())), times);
  hello.clear_previous();
  hello.clear_holdings();
  hello.clear_followed();
  hello.clear_kept();
}

bool Arrivals::waits(const SessionPtr& session) const {
  const auto is_its = [&](const Arrival& arrival) { return arrival.session == session; };
  return std::ranges::any_of(fresh_, is_its) || std::ranges::any_of(waiting_, is_its);
}

void Arrivals::refuse(const SessionPtr& session, const wire::Hello& hello,
                      const RpcChannel::Respond& respond, const Error& error) {
  in_.refusals.at_the_door(hello, session->channel->connection().remote(), error.what);
  in_.outbox.respond(respond, std::unexpected(error));
}

// Not refused: it says hello again over a new connection.
void Arrivals::send_away(const SessionPtr& session, const RpcChannel::Respond& respond,
                         const std::string& why) {
  in_.outbox.respond(respond, fail(ErrorCode::kPeerGone, why));
  in_.outbox.close(session);
}

void Arrivals::wake() {
  std::ranges::move(waiting_, std::back_inserter(fresh_));
  waiting_.clear();
}

void Arrivals::tell_the_end(const SessionPtr& session, const RpcChannel::Respond& respond,
                            const Frame& shutdown) {
  in_.outbox.send(session, shutdown);
  send_away(session, respond, "the run has ended");
}

void Arrivals::tell_the_end_to_all(const Frame& shutdown) {
  wake();
  held_bytes_ = 0;
  for (const Arrival& arrival : std::exchange(fresh_, {}))
    if (!arrival.session->closed) tell_the_end(arrival.session, arrival.respond, shutdown);
}

void Arrivals::admit() {
  std::vector<Arrival> again;
  for (Arrival& arrival : std::exchange(fresh_, {})) {
    if (arrival.session->closed) continue;
    switch (admit_one(arrival)) {
      case Outcome::kAnswered:
        break;
      case Outcome::kWaits:
        SWARMLINE_MARK("arrivals.waits");
        waiting_.push_back(std::move(arrival));
        break;
      case Outcome::kAfterLosses:
        again.push_back(std::move(arrival));
        break;
    }
  }
  std::ranges::move(again, std::back_inserter(fresh_));
  held_bytes_ = 0;
  for (const auto* list : {&fresh_, &waiting_})
    for (const Arrival& arrival : *list) held_bytes_ += arrival.bytes;
}

Arrivals::Outcome Arrivals::admit_one(const Arrival& arrival) {
  if (in_.life.is<life::RollingBack>()) return Outcome::kWaits;  // the answer says the era
  const wire::Hello& hello = arrival.hello;
  if (arrival.session->has_seat()) {  // given meanwhile, for a hello before this one
    in_.outbox.respond(arrival.respond,
                       fail(ErrorCode::kRefused, "this connection has a seat already"));
    return Outcome::kAnswered;
  }
  if (knows_another_coordinator(hello)) {
    in_.outbox.respond(arrival.respond,
                       fail(ErrorCode::kPeerGone, "it knows of another coordinator"));
    return Outcome::kAnswered;
  }
  in_.recovery.heard_somebody();
  if (in_.recovery.resumes(hello, in_.identity.run_id)) {
    resume(arrival, hello);
    return Outcome::kAnswered;
  }
  if (!takes_newcomers(hello)) return Outcome::kWaits;
  if (const Member* before = in_.members.former(hello);
      before != nullptr && hello.has_holdings() && in_.takeovers.was_sent(*before)) {
    SWARMLINE_MARK("arrivals.sent_again");
    in_.outbox.send(arrival.session, sent_again(*before));
    send_away(arrival.session, arrival.respond, "it is told again which stage it takes over");
    return Outcome::kAnswered;
  }
  // A new connection of a peer whose old one nobody has seen end.
  if (const Seat before = from_wire(hello.previous());
      in_.members.is_current(before) &&
      Membership::is_same(in_.members.members().at(before.peer), hello)) {
    SWARMLINE_MARK("arrivals.over_a_new_connection");
    return over_a_new_connection(arrival, before);
  }
  // Its place may hang on it.
  if (!in_.reach.knows(arrival.session, hello, [this] { wake(); })) return Outcome::kWaits;
  seat(arrival, hello);
  return Outcome::kAnswered;
}

Arrivals::Outcome Arrivals::over_a_new_connection(const Arrival& arrival, const Seat& before) {
  if (const MemberState state = in_.members.members().at(before.peer).state;
      !in_.life.is<life::Forming>() &&
      (state == MemberState::kBuilding || state == MemberState::kFollowing)) {
    SWARMLINE_MARK("arrivals.newcomer_over_a_new_connection");
    in_.rulings.lose(before, "it holds nothing yet, and joins again over a new connection",
                     Departure::kMoves);
    return Outcome::kAfterLosses;
  }
  const bool was_deaf = ask_.may_begin_again() && in_.detector.was_deaf(in_.alarms.now());
  if (!was_deaf && !ask_.cut_off(before)) {
    in_.rulings.lose(before, "it came back over a new connection");
    return Outcome::kAfterLosses;
  }
  if (was_deaf) SWARMLINE_MARK("arrivals.after_a_deaf_time");
  send_away(arrival.session, arrival.respond,
            "the run is looked for anew");  // with the others it finds its seat again
  in_.rulings.begin_again(fmt::format("{}{} came back over a new connection", to_string(before),
                                      was_deaf ? ", after a time in which nobody was heard,"
                                               : ", the last of its stage,"),
                          was_deaf);
  return Outcome::kAnswered;
}

Result<wire::Hello> Arrivals::checked(const SessionPtr& session, const Frame& frame) const {
  auto hello = parse<wire::Hello>(frame);
  if (!hello) return hello;
  const auto key = session->channel->connection().peer_key();
  hello->set_key(key ? to_string(*key) : "");  // whatever it says of itself
  if (session->has_seat()) return fail(ErrorCode::kRefused, "this connection has a seat already");
  // First: what else it says may mean something else there.
  if (auto same = check_protocol(hello->protocol()); !same) return std::unexpected(same.error());
  if (auto good = check_text("name", hello->name(), Limits::name_bytes_max); !good)
    return std::unexpected(good.error());
  if (auto good = check_text("address", hello->address(), Limits::address_bytes_max); !good)
    return std::unexpected(good.error());
  if (auto good = check_text("device", hello->device(), Limits::name_bytes_max); !good)
    return std::unexpected(good.error());
  if (auto good = check_text("zone", hello->zone(), Limits::name_bytes_max); !good)
    return std::unexpected(good.error());
  if (auto good = check_text("host", hello->host(), Limits::name_bytes_max); !good)
    return std::unexpected(good.error());
  if (auto good = check_text("GPU", hello->gpu().uuid(), Limits::name_bytes_max); !good)
    return std::unexpected(good.error());
  for (const auto& [what, price] :
       {std::pair{"price", hello->price()}, std::pair{"egress price", hello->egress_price()}})
    if (!price_is_believed(price))
      return fail(ErrorCode::kRefused,
                  fmt::format("its {} is {:g}, expected 0 to {:g}", what, price, kPriceMax));
  if (!(hello->bandwidth() >= 0 && hello->bandwidth() <= kBandwidthMax))
    return fail(ErrorCode::kRefused, fmt::format("its bandwidth is {:g}, expected 0 to {:g}",
                                                 hello->bandwidth(), kBandwidthMax));
  return hello;
}

bool Arrivals::knows_another_coordinator(const wire::Hello& hello) {
  if (hello.run_id() != in_.identity.run_id || hello.term() <= in_.identity.term.value)
    return false;
  SWARMLINE_MARK("arrivals.knows_a_later_term");
  check_reign();
  return true;
}

// A peer says that another coordinator came after this one: the journal knows.
void Arrivals::check_reign() {
  in_.journal.ask_term(in_.alarms.then_settle([this](const Result<std::uint64_t>& term) {
    if (!term && term.error().code == ErrorCode::kRefused) in_.rulings.step_down(term.error().what);
    if (term && *term > in_.identity.term.value)
      in_.rulings.step_down(
          fmt::format("the journal is at term {}, this is {}", *term, in_.identity.term.value));
  }));
}

// A run that is about to end takes nobody but those it needs; the others are told how it ended, or
// are needed if it goes back.
bool Arrivals::takes_newcomers(const wire::Hello& hello) const {
  if (in_.life.is<life::Forming>() || in_.life.is<life::Training>() ||
      in_.life.is<life::Recovering>())
    return true;
  const Member* before = in_.members.former(hello);
  return before != nullptr && in_.takeovers.was_sent(*before);
}

wire::Welcome Arrivals::welcome_to(const SessionPtr& session) const {
  const Seat seat = session->seat;
  wire::Welcome welcome;
  welcome.set_term(in_.identity.term.value);
  welcome.set_era(in_.identity.era.value);
  welcome.set_run_id(in_.identity.run_id);
  *welcome.mutable_seat() = to_wire(seat);
  if (!in_.identity.key.empty()) {
    welcome.set_seat_proof(seat_proof(in_.identity.key, seat));
    welcome.set_link_key(link_key(in_.identity.key));
  }
  for (const std::string& address : in_.shape.config.net.standby) welcome.add_coordinators(address);
  const auto key = session->channel->connection().peer_key();
  const auto& certify = in_.shape.options.certify;
  if (key && certify) welcome.set_seat_certificate(certify(in_.identity.run_id, seat, *key));
  return welcome;
}

std::string Arrivals::certified_anew(const SessionPtr& session) const {
  const auto key = session->channel->connection().peer_key();
  const auto& certify = in_.shape.options.certify_anew;
  return key && certify ? certify(in_.identity.run_id, session->seat, *key) : std::string();
}

void Arrivals::resume(const Arrival& arrival, const wire::Hello& hello) {
  in_.recovery.resume(arrival.session, hello);
  const auto note = [this, session = arrival.session] {
    if (!in_.members.is_current(session->seat) || session->reach == Reach::kUnknown) return;
    Member& member = in_.members.at(session->seat.peer);
    if (std::exchange(member.reach, session->reach) != session->reach)
      in_.journal.record_seat(record_of(member, "active"));
  };
  if (in_.reach.knows(arrival.session, hello, note)) note();
  wire::Welcome welcome = welcome_to(arrival.session);
  welcome.set_resumed(true);
  in_.outbox.respond(arrival.respond, make_frame(MessageKind::kWelcome, welcome));
}

void Arrivals::seat(const Arrival& arrival, const wire::Hello& hello) {
  if (in_.data.asks(hello)) {
    SWARMLINE_MARK("arrivals.asked_of_its_data");
    return in_.outbox.respond(arrival.respond,
                              make_frame(MessageKind::kDataWanted, in_.data.question()));
  }
  if (const auto admitted = in_.data.admit(hello); !admitted)
    return refuse(arrival.session, hello, arrival.respond, admitted.error());
  const bool forming = in_.life.is<life::Forming>();
  const std::optional<StageId> stage = in_.reach.place(
      arrival.session->reach,
      forming ? in_.first_bits.in_doubt() : in_.relocation.place(hello, in_.sequence.committed()),
      in_.shape);
  const auto seat = in_.members.join(hello, stage);
  if (!seat) return refuse(arrival.session, hello, arrival.respond, seat.error());
  in_.sessions.seat(arrival.session, *seat);
  in_.members.at(seat->peer).seated_at = in_.alarms.now();
  in_.members.at(seat->peer).reach = arrival.session->reach;
  in_.kept_heirs.came_back(seat->peer);
  in_.detector.watch(*seat, in_.alarms.now());
  in_.journal.record_new_seat(
      record_of(in_.members.at(seat->peer), forming ? "active" : "joining"));
  in_.events.of_peer(*seat, "peer_joined",
                     fmt::format(" at {}{}", hello.address(),
                                 lacks_data(hello)     ? ", which lacks the run's data"
                                 : fetches_data(hello) ? ", which fetches the run's data"
                                                       : ""));
  wire::Welcome welcome = welcome_to(arrival.session);
  welcome.set_config_toml(in_.identity.config_toml);
  welcome.set_vocab(in_.shape.options.model.shape.vocab);
  welcome.set_separator(in_.shape.options.model.separator);
  for (const StageSpec& spec : in_.shape.stages) {
    wire::StageCut* cut = welcome.add_cuts();
    cut->set_first_layer(spec.first_layer);
    cut->set_last_layer(spec.last_layer);
  }
  welcome.set_joining(!forming);
  if (forming) welcome.set_version(in_.beginning.version());
  welcome.set_keeps_followed(keeps_followed(hello, *seat));
  welcome.set_heartbeat_seconds(in_.shape.config.net.heartbeat_seconds);
  in_.outbox.respond(arrival.respond, make_frame(MessageKind::kWelcome, welcome));
  if (!welcome.keeps_followed()) return;
  in_.states.follow_on(*seat, hello.followed().version());
  in_.takeovers.seated(*seat);
}

// It comes with a whole state; commits since then can be told again.
bool Arrivals::keeps_followed(const wire::Hello& hello, const Seat& seat) const {
  return hello.has_followed() && hello.followed().stage() == seat.stage.value &&
         in_.states.can_follow_on(hello.followed().version()) && !in_.life.is<life::Forming>();
}

}  // namespace swarmline
