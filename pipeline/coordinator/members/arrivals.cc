#include "pipeline/coordinator/members/arrivals.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "base/marks.h"
#include "pipeline/protocol/message_kinds.h"

namespace swarmline {

void Arrivals::on_hello(const SessionPtr& session, const Frame& frame,
                        RpcChannel::Respond respond) {
  if (fresh_.size() + waiting_.size() >= kHellosMax) {
    SWARMLINE_MARK("arrivals.too_many");
    return send_away({.session = session, .frame = frame, .respond = std::move(respond)},
                     "too many say hello");
  }
  session->said_hello = true;
  fresh_.push_back({.session = session, .frame = frame, .respond = std::move(respond)});
}

// Not refused: it says hello again over a new connection.
void Arrivals::send_away(const Arrival& arrival, const std::string& why) {
  in_.outbox.respond(arrival.respond, fail(ErrorCode::kPeerGone, why));
  in_.outbox.close(arrival.session);
}

void Arrivals::wake() {
  std::ranges::move(waiting_, std::back_inserter(fresh_));
  waiting_.clear();
}

void Arrivals::refuse_all(const std::string& why) {
  wake();
  for (Arrival& arrival : std::exchange(fresh_, {}))
    if (!arrival.session->closed)
      in_.outbox.respond(std::move(arrival.respond), fail(ErrorCode::kRefused, why));
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
}

Arrivals::Outcome Arrivals::admit_one(const Arrival& arrival) {
  if (in_.life.is<life::RollingBack>()) return Outcome::kWaits;  // the answer says the era
  const auto hello = checked(arrival);
  if (!hello) {
    in_.outbox.respond(arrival.respond, std::unexpected(hello.error()));
    return Outcome::kAnswered;
  }
  if (knows_another_coordinator(*hello)) {
    in_.outbox.respond(arrival.respond,
                       fail(ErrorCode::kPeerGone, "it knows of another coordinator"));
    return Outcome::kAnswered;
  }
  in_.recovery.heard_somebody();
  if (in_.recovery.resumes(*hello, in_.identity.run_id)) {
    resume(arrival, *hello);
    return Outcome::kAnswered;
  }
  if (!takes_newcomers(*hello)) return Outcome::kWaits;
  // A new connection of a peer whose old one nobody has seen end.
  if (const Seat before = from_wire(hello->previous());
      in_.members.is_current(before) &&
      Membership::is_same(in_.members.members().at(before.peer), *hello)) {
    SWARMLINE_MARK("arrivals.over_a_new_connection");
    if (!cut_off_(before)) {
      in_.rulings.lose(before, "it came back over a new connection");
      return Outcome::kAfterLosses;
    }
    send_away(arrival, "the run is looked for anew");  // with the others it finds its seat again
    in_.rulings.begin_again(
        fmt::format("{}, the last of its stage, came back over a new connection",
                    to_string(before)),
        false);
    return Outcome::kAnswered;
  }
  seat(arrival, *hello);
  return Outcome::kAnswered;
}

Result<wire::Hello> Arrivals::checked(const Arrival& arrival) const {
  auto hello = parse<wire::Hello>(arrival.frame);
  if (!hello) return hello;
  const auto key = arrival.session->channel->connection().peer_key();
  hello->set_key(key ? to_string(*key) : "");  // whatever it says of itself
  if (arrival.session->has_seat())
    return fail(ErrorCode::kRefused, "this connection has a seat already");
  if (hello->name().size() > kTextBytesMax || hello->address().size() > kTextBytesMax ||
      hello->device().size() > kTextBytesMax)
    return fail(ErrorCode::kRefused,
                fmt::format("its name, address or device has more than {} bytes", kTextBytesMax));
  if (hello->protocol() != kProtocolVersion)
    return fail(
        ErrorCode::kRefused,
        fmt::format("it speaks protocol {}, this run speaks {}: use the same version of swarmline",
                    hello->protocol(), kProtocolVersion));
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
  for (const std::string& address : in_.shape.config.net.standby) welcome.add_coordinators(address);
  const auto key = session->channel->connection().peer_key();
  const auto& certify = in_.shape.options.certify;
  if (key && certify) welcome.set_seat_certificate(certify(in_.identity.run_id, seat, *key));
  return welcome;
}

void Arrivals::resume(const Arrival& arrival, const wire::Hello& hello) {
  in_.recovery.resume(arrival.session, hello);
  wire::Welcome welcome = welcome_to(arrival.session);
  welcome.set_resumed(true);
  in_.outbox.respond(arrival.respond, make_frame(MessageKind::kWelcome, welcome));
}

void Arrivals::seat(const Arrival& arrival, const wire::Hello& hello) {
  const bool forming = in_.life.is<life::Forming>();
  const std::optional<StageId> stage =
      in_.relocation.place(hello, forming, in_.sequence.committed());
  const auto seat = in_.members.join(hello, stage);
  if (!seat) return in_.outbox.respond(arrival.respond, std::unexpected(seat.error()));
  in_.sessions.seat(arrival.session, *seat);
  in_.members.at(seat->peer).seated_at = in_.alarms.now();
  in_.detector.watch(*seat, in_.alarms.now());
  in_.journal.record_new_seat({.seat = *seat,
                               .address = hello.address(),
                               .state = forming ? "active" : "joining",
                               .key = hello.key()});
  in_.events.event("peer_joined", fmt::format("{} at {}", to_string(*seat), hello.address()));
  wire::Welcome welcome = welcome_to(arrival.session);
  welcome.set_config_toml(in_.shape.options.config_toml);
  welcome.set_vocab(in_.shape.options.model.shape.vocab);
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
