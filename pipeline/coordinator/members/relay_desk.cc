#include "pipeline/coordinator/members/relay_desk.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/limits.h"
#include "base/marks.h"
#include "base/printable.h"
#include "engine/identity/secrets.h"
#include "engine/net/relay_door.h"
#include "pipeline/protocol/message_bounds.h"
#include "pipeline/protocol/message_kinds.h"
#include "pipeline/protocol/protocol_version.h"

namespace swarmline {

void RelayDesk::on_hello(const SessionPtr& session, const Frame& frame,
                         RpcChannel::Respond respond) {
  const auto hello = parse<wire::RelayHello>(frame);
  Result<void> good = hello ? check(*hello) : std::unexpected(hello.error());
  if (good && (has(session) || session->has_seat()))
    good = fail(ErrorCode::kRefused, "this connection is a peer's or a relay's already");
  if (!good) {
    SWARMLINE_MARK("relays.refused");
    outbox_.respond(std::move(respond), std::unexpected(good.error()));
    return outbox_.close(session);
  }
  session->channel->connection().believe(bounds_of_peer());
  relays_.push_back({.session = session,
                     .name = hello->name(),
                     .address = hello->address(),
                     .links_max = hello->links_max()});
  events_.event("relay_joined", fmt::format("{} at {}, {} links at most", hello->name(),
                                            hello->address(), hello->links_max()));
  outbox_.respond(std::move(respond), make_frame(MessageKind::kRelayWelcome, wire::RelayWelcome()));
}

Result<void> RelayDesk::check(const wire::RelayHello& hello) const {
  SWARMLINE_TRY(check_protocol(hello.protocol()));
  if (hello.name().size() > Limits::name_bytes_max || !is_printable(hello.name()) ||
      hello.address().size() > Limits::address_bytes_max || !is_printable(hello.address()) ||
      !parse_address(hello.address()))
    return fail(ErrorCode::kRefused, "its name or address is too long, or is none");
  if (relays_.size() >= kRelaysMax)
    return fail(ErrorCode::kRefused, fmt::format("the run has {} relays", kRelaysMax));
  return {};
}

void RelayDesk::on_message(const SessionPtr& session, const Frame& frame) {
  const auto state = parse<wire::RelayState>(frame);
  if (!state || kind_of(frame) != MessageKind::kRelayState) return outbox_.close(session);
  session->heard = alarms_.now();
  for (Relay& relay : relays_) {
    if (relay.session != session) continue;
    relay.links = state->links();
    relay.bytes = std::max(relay.bytes, state->bytes());
  }
}

void RelayDesk::on_closed(const SessionPtr& session) {
  const auto gone = std::ranges::find(relays_, session, &Relay::session);
  if (gone == relays_.end()) return;
  SWARMLINE_MARK("relays.lost");
  events_.event("relay_lost", fmt::format("{} at {}", gone->name, gone->address), LogLevel::kWarn);
  relays_.erase(gone);
}

bool RelayDesk::has(const SessionPtr& session) const {
  return std::ranges::find(relays_, session, &Relay::session) != relays_.end();
}

std::optional<RelayDesk::Meeting> RelayDesk::meet() {
  const auto room = [](const Relay& relay) {
    return static_cast<std::int64_t>(relay.links_max) - relay.links;
  };
  const auto best = std::ranges::max_element(relays_, {}, room);
  if (best == relays_.end() || room(*best) <= 0) return std::nullopt;
  ++best->links;
  Meeting meeting{.address = best->address, .ticket = make_ticket()};
  wire::RelayTicket ticket;
  ticket.set_ticket(meeting.ticket);
  outbox_.send(best->session, make_frame(MessageKind::kRelayTicket, ticket));
  return meeting;
}

// Nobody else can guess the next one.
std::string RelayDesk::make_ticket() {
  const std::string text =
      fmt::format("swarmline relay ticket 1 {} {}", identity_.term.value, ++tickets_);
  return as_string(hmac_sha256(identity_.key, text)).substr(0, kRelayTicketBytes);
}

void RelayDesk::tell_all(const Frame& frame) {
  for (const Relay& relay : relays_) outbox_.send(relay.session, frame);
}

}  // namespace swarmline
