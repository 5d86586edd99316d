#include "pipeline/stage/life/coordinator_link.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/marks.h"
#include "engine/net/message_pieces.h"
#include "pipeline/protocol/data_messages.h"
#include "pipeline/protocol/knobs.h"
#include "pipeline/protocol/message_bounds.h"

namespace swarmline {
namespace {

// A part of `most` that differs from peer to peer: ids in a row are far apart (Fibonacci hashing,
// Knuth, The Art of Computer Programming, vol. 3, 6.4).
Duration spread_of(std::uint32_t peer, Duration most) {
  constexpr std::uint32_t kGoldenRatio = 2654435769;
  const double part = static_cast<double>(peer * kGoldenRatio) * 0x1p-32;
  return from_seconds(part * to_seconds(most));
}

// Where links are authenticated: it holds the run's key.
bool is_coordinator(const Connection& connection) {
  const std::string proven = connection.admitted_as();
  return proven.empty() || proven == "run";
}

}  // namespace

CoordinatorLink::CoordinatorLink(Runtime& runtime, Network& network, Hooks hooks)
    : runtime_(runtime), network_(network), hooks_(std::move(hooks)) {}

void CoordinatorLink::add_address(const Address& address) {
  if (addresses_.size() < kCoordinatorsMax &&
      std::ranges::find(addresses_, address) == addresses_.end())
    addresses_.push_back(address);
}

// ---- Searching ----------------------------------------------------------------------------------

void CoordinatorLink::search(const std::string& why) {
  why_searching_ = why;
  search_until_ = runtime_.now() + patience_;
}

void CoordinatorLink::connect() {
  network_.connect(next_address(), knobs().reach_timeout,
                   guard_.wrap([this](const Result<std::shared_ptr<Connection>>& connected) {
                     if (finished_) return;
                     if (!connected && connected.error().code == ErrorCode::kRefused)
                       return hooks_.on_end(
                           3, "the coordinator did not take this peer: " + connected.error().what);
                     if (!connected) return try_next(connected.error());
                     if (!is_coordinator(**connected)) {
                       SWARMLINE_MARK("link.no_coordinator_there");
                       (*connected)->start({.on_frame = [](Frame) {}, .on_closed = [](Error) {}});
                       (*connected)->close();
                       return try_next({ErrorCode::kCorrupt, "another peer of the run is there"});
                     }
                     channel_ = RpcChannel::make(runtime_, *connected);
                     say_hello();
                   }));
}

void CoordinatorLink::try_next(const Error& error) {
  if (run_id_.empty()) {  // a newcomer: there may be none yet, or never
    const bool first = why_searching_.empty();
    why_searching_ =
        fmt::format("no coordinator answers at {}: {}", to_string(next_address()), error.what);
    if (first)
      log(LogLevel::kWarn, "{}; trying for {:.0f} s", why_searching_, to_seconds(patience_));
  }
  ++tried_;
  connect_again();
}

void CoordinatorLink::connect_again() {
  if (runtime_.now() > search_until_) return hooks_.on_end(1, why_searching_);
  runtime_.call_after(rejoin_pause(), guard_.wrap([this] {
    if (!finished_) connect();
  }));
}

Duration CoordinatorLink::rejoin_pause() const {
  constexpr std::uint32_t kDoublingsMax = 16;
  const bool calm = runtime_.now() - welcomed_ >= knobs().rejoin_calm;
  if (calm || welcomes_in_a_row_ <= kWelcomesInARow) return knobs().rejoin_pause;
  SWARMLINE_MARK("link.welcomed_too_often");
  const std::uint32_t doublings = std::min(welcomes_in_a_row_ - kWelcomesInARow, kDoublingsMax);
  return std::max<Duration>(
      knobs().rejoin_pause,
      std::min<Duration>(knobs().rejoin_pause * (1 << doublings), knobs().rejoin_pause_max));
}

// ---- Hello and welcome --------------------------------------------------------------------------

void CoordinatorLink::say_hello() {
  ++connection_;
  channel_->start({
      .on_message = guard_.wrap([this, connection = connection_](const Frame& frame) {
        if (connection_ == connection) on_message(frame);
      }),
      .on_request =
          [](const Frame&, const RpcChannel::Respond& respond) {
            respond(fail(ErrorCode::kRefused, "peers answer no requests"));
          },
      .on_closed = guard_.wrap([this, connection = connection_](const Error& error) {
        if (connection_ == connection) on_closed(error);
      }),
  });
  channel_->connection().believe(bounds_of_coordinator());
  wire::Hello hello = hooks_.hello();
  hello.set_address(seen_from(channel_->connection(), hello.address()));
  hello.set_run_id(run_id_);
  hello.set_term(term_.value);
  // One that is stopped takes connections and answers nothing: then the next is asked.
  const bool others = addresses_.size() > 1;
  channel_->call(make_frame(MessageKind::kHello, hello),
                 others ? knobs().welcome_timeout : Limits::rpc_deadline,
                 guard_.wrap([this, connection = connection_](const Result<Frame>& reply) {
                   if (finished_ || connection_ != connection) return;
                   awaits_welcome_ = false;
                   if (!reply) return on_hello_failed(reply.error());
                   if (kind_of(*reply) == MessageKind::kDataWanted) return on_data_wanted(*reply);
                   auto welcome = parse<wire::Welcome>(*reply);
                   if (!welcome) return hooks_.on_end(1, welcome.error().what);
                   on_welcome(*welcome);
                 }));
  awaits_welcome_ = true;
  beat_until_answered(connection_);
}

void CoordinatorLink::beat_until_answered(std::uint32_t connection) {
  if (beating_) return;  // it has had a seat, and goes on with it
  runtime_.call_after(Limits::heartbeat_period, guard_.wrap([this, connection] {
    if (finished_ || connection_ != connection || !awaits_welcome_) return;
    SWARMLINE_MARK("link.waits_for_its_welcome");
    say_beat(hooks_.heartbeat());
    beat_until_answered(connection);
  }));
}

void CoordinatorLink::on_hello_failed(const Error& error) {
  if (error.code == ErrorCode::kDeadline || error.code == ErrorCode::kPeerGone) {
    SWARMLINE_MARK("link.no_welcome");
    return channel_->close();
  }
  hooks_.on_end(error.code == ErrorCode::kRefused ? 3 : 1,
                "the coordinator did not take this peer: " + error.what);
}

void CoordinatorLink::on_data_wanted(const Frame& reply) {
  const auto wanted = parse<wire::DataWanted>(reply);
  auto manifest =
      wanted ? from_wire(*wanted) : Result<DataManifest>(std::unexpected(wanted.error()));
  if (!manifest) return hooks_.on_end(1, manifest.error().what);
  hooks_.on_data_wanted(std::move(*manifest));
}

void CoordinatorLink::on_welcome(const wire::Welcome& welcome) {
  const bool same_run = welcome.run_id() == run_id_;
  if (same_run && welcome.term() < term_.value) {  // its reign is over, it only does not know
    SWARMLINE_MARK("link.lower_term_left");
    return channel_->close();
  }
  term_ = Term{welcome.term()};
  run_id_ = welcome.run_id();
  heard_ = runtime_.now();
  const bool soon = heard_ - std::exchange(welcomed_, heard_) < knobs().rejoin_calm;
  welcomes_in_a_row_ = soon ? welcomes_in_a_row_ + 1 : 1;
  if (hooks_.on_certificate && !welcome.seat_certificate().empty())
    hooks_.on_certificate(welcome.seat_certificate());
  for (const std::string& text : welcome.coordinators())
    if (const auto address = parse_address(text)) add_address(*address);
  hooks_.on_welcome(welcome, same_run);
}

// ---- What it says -------------------------------------------------------------------------------

void CoordinatorLink::on_message(const Frame& frame) {
  if (kind_of(frame) != MessageKind::kShutdown) heard_ = runtime_.now();
  kind_of(frame) == MessageKind::kHeartbeatAck ? on_ack(frame) : hooks_.on_message(frame);
}

void CoordinatorLink::on_closed(const Error& error) {
  ++connection_;
  channel_.reset();
  if (!finished_) hooks_.on_closed(error);
}

void CoordinatorLink::drop() {
  ++connection_;
  if (channel_) std::exchange(channel_, nullptr)->close();
}

void CoordinatorLink::close() {
  if (channel_) channel_->close();
}

void CoordinatorLink::finish() {
  finished_ = true;
  end_heartbeats();
}

void CoordinatorLink::notify(Frame frame) {
  if (channel_) channel_->notify(std::move(frame));
}

void CoordinatorLink::call(Frame request, RpcChannel::Reply reply) {
  if (channel_)
    return channel_->call(std::move(request), knobs().coordinator_answer, std::move(reply));
  runtime_.post(guard_.wrap([reply = std::move(reply)] {
    reply(fail(ErrorCode::kPeerGone, "there is no coordinator now"));
  }));
}

// ---- Heartbeats ---------------------------------------------------------------------------------

void CoordinatorLink::begin_heartbeats(Duration usual) {
  if (usual > Duration{}) usual_ = usual;
  period_ = usual_;
  ++beats_;
  beating_ = true;
  beat();
}

// Who was asked to beat as usual again has still to come to the end of a longer pause.
void CoordinatorLink::beat_as_usual() {
  if (period_ != usual_ || beat_due_ - runtime_.now() > usual_) begin_heartbeats(usual_);
}

void CoordinatorLink::on_ack(const Frame& frame) {
  const auto ack = parse<wire::HeartbeatAck>(frame);
  if (ack && hooks_.on_certificate && !ack->seat_certificate().empty()) {
    SWARMLINE_MARK("link.certified_anew");
    log(LogLevel::kInfo, "the run has certified its seat anew");
    hooks_.on_certificate(ack->seat_certificate());
  }
  const Duration asked = ack ? heartbeat_period_from(ack->period_seconds()) : Duration{};
  if (asked == Duration{} || asked == period_) return;
  SWARMLINE_MARK("link.asked_for_another_period");
  period_ = asked;
  spreads_ = period_ > usual_;
}

void CoordinatorLink::beat() {
  wire::Heartbeat message = hooks_.heartbeat();
  if (silent()) {
    SWARMLINE_MARK("link.silent_coordinator_left");
    channel_->close();
  }
  const Duration pause = std::exchange(spreads_, false)
                             ? period_ - spread_of(message.seat().peer(), period_ - usual_)
                             : period_;
  if (pause != usual_) message.set_period_seconds(to_seconds(pause));
  say_beat(message);
  beat_due_ = runtime_.now() + pause;
  runtime_.call_after(pause, guard_.wrap([this, beats = beats_] {
    if (beats_ == beats) beat();
  }));
}

void CoordinatorLink::say_beat(const wire::Heartbeat& message) {
  Frame frame = make_frame(MessageKind::kHeartbeat, message);
  frame.flags = kFrameFlagAhead;
  notify(std::move(frame));
}

// Late itself, this process was stopped: then it can't say who is silent.
bool CoordinatorLink::silent() {
  const Instant now = runtime_.now();
  if (now - beat_due_ > usual_) heard_ = now;
  const Duration allowed =
      std::max<Duration>(knobs().coordinator_silence, 10 * usual_) + (period_ - usual_);
  return channel_ && addresses_.size() > 1 && now - heard_ > allowed;
}

void CoordinatorLink::check_invariants() const {
  SWARMLINE_CHECK(addresses_.size() <= kCoordinatorsMax);
}

}  // namespace swarmline
