#include "pipeline/relay/relay_role.h"

#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/marks.h"
#include "pipeline/protocol/knobs.h"
#include "pipeline/protocol/message_bounds.h"
#include "pipeline/protocol/message_kinds.h"
#include "pipeline/protocol/protocol_version.h"

namespace swarmline {

RelayRole::RelayRole(Runtime& runtime, Network& network, RelayDoor& door, RelayRoleOptions options,
                     std::function<void(int, const std::string&)> on_finished)
    : runtime_(runtime),
      network_(network),
      door_(door),
      options_(std::move(options)),
      on_finished_(std::move(on_finished)) {
  SWARMLINE_CHECK(!options_.coordinators.empty());
}

RelayRole::~RelayRole() {
  guard_.drop_callbacks();
  if (channel_) channel_->close();
}

void RelayRole::start() {
  auto bound = door_.listen(options_.listen);
  if (!bound) return finish(2, bound.error().what);
  bound_ = *bound;
  search_until_ = runtime_.now() + options_.patience;
  connect();
}

// ---- Its coordinator ----------------------------------------------------------------------------

void RelayRole::connect() {
  const Address& address = options_.coordinators[tried_ % options_.coordinators.size()];
  network_.connect(address, knobs().reach_timeout,
                   guard_.wrap([this](const Result<std::shared_ptr<Connection>>& made) {
                     if (finished_) return;
                     if (made) return say_hello(*made);
                     if (made.error().code == ErrorCode::kRefused)
                       return finish(
                           3, "the coordinator did not take this relay: " + made.error().what);
                     try_again(made.error().what);
                   }));
}

void RelayRole::say_hello(const std::shared_ptr<Connection>& connection) {
  channel_ = RpcChannel::make(runtime_, connection);
  channel_->start({.on_message = guard_.wrap([this](const Frame& frame) { on_message(frame); }),
                   .on_request =
                       [](const Frame&, const RpcChannel::Respond& respond) {
                         respond(fail(ErrorCode::kRefused, "relays answer no requests"));
                       },
                   .on_closed = guard_.wrap([this](const Error& error) {
                     channel_.reset();
                     taken_ = false;
                     if (!finished_) try_again(error.what);
                   })});
  connection->believe(bounds_of_coordinator());
  wire::RelayHello hello;
  hello.set_protocol(kProtocolVersion);
  hello.set_name(options_.name);
  hello.set_address(
      seen_from(*connection, options_.advertise.empty() ? to_string(bound_) : options_.advertise));
  hello.set_links_max(options_.bounds.links_max);
  channel_->call(make_frame(MessageKind::kRelayHello, hello), Limits::rpc_deadline,
                 guard_.wrap([this](const Result<Frame>& reply) {
                   if (finished_) return;
                   if (reply) return taken();
                   if (reply.error().code == ErrorCode::kRefused)
                     return finish(
                         3, "the coordinator did not take this relay: " + reply.error().what);
                   if (channel_) channel_->close();
                 }));
}

void RelayRole::taken() {
  taken_ = true;
  log(LogLevel::kInfo, "relaying for the run, at {} ({} links at most)", to_string(bound_),
      options_.bounds.links_max);
  say_state();
}

void RelayRole::try_again(const std::string& why) {
  ++tried_;
  if (channel_) return;
  const bool patient = runtime_.now() <= search_until_;
  if (!patient) return finish(1, "no coordinator takes this relay: " + why);
  runtime_.call_after(knobs().rejoin_pause, guard_.wrap([this] {
    if (!finished_ && !channel_) connect();
  }));
}

// ---- What it is told ----------------------------------------------------------------------------

void RelayRole::on_message(const Frame& frame) {
  if (kind_of(frame) == MessageKind::kShutdown) {
    const auto shutdown = parse<wire::Shutdown>(frame);
    return finish(shutdown ? static_cast<int>(shutdown->exit_code()) : 1,
                  shutdown ? shutdown->reason() : "the coordinator ended the run");
  }
  if (kind_of(frame) != MessageKind::kRelayTicket) return;
  const auto ticket = parse<wire::RelayTicket>(frame);
  if (ticket && !door_.expect(ticket->ticket())) SWARMLINE_MARK("relay_role.full");
}

void RelayRole::say_state() {
  if (!taken_ || finished_) return;
  search_until_ = runtime_.now() + options_.patience;
  const RelayDoor::Counters counters = door_.counters();
  wire::RelayState state;
  state.set_links(static_cast<std::uint32_t>(counters.links));
  state.set_bytes(counters.bytes);
  channel_->notify(make_frame(MessageKind::kRelayState, state));
  runtime_.call_after(kStatePeriod, guard_.wrap([this, channel = std::weak_ptr(channel_)] {
    if (const auto same = channel.lock(); same && same == channel_) say_state();
  }));
}

void RelayRole::finish(int exit_code, const std::string& why) {
  if (std::exchange(finished_, true)) return;
  if (channel_) channel_->close();
  runtime_.post(guard_.wrap([this, exit_code, why] { on_finished_(exit_code, why); }));
}

}  // namespace swarmline
