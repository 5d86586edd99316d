#include "engine/net/tcp/tls_lobby.h"

#include <fcntl.h>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"
#include "base/marks.h"

namespace swarmline {
namespace {

// Both ends say little and wait for the other: nothing may be held back for more to come.
void prepare(TlsLobby::Socket& socket) {
  boost::system::error_code ignored;
  socket.non_blocking(true, ignored);
  socket.set_option(boost::asio::ip::tcp::no_delay(true), ignored);
  fcntl(socket.native_handle(), F_SETFD, FD_CLOEXEC);
}

}  // namespace

TlsLobby::TlsLobby(AsioRuntime& runtime, LinkGuard& guard, const TcpOptions& options,
                   TcpNetwork::Counters& counters)
    : runtime_(runtime),
      guard_(guard),
      handshake_max_(options.handshake_max),
      counters_(counters),
      strangers_(options.strangers),
      ration_(options.handshakes) {}

std::shared_ptr<TlsContext> TlsLobby::context() {
  const Identity& identity = guard_.identity();
  std::string vouchers = guard_.vouchers();
  if (context_ && identity.hash() == shown_ && vouchers == vouchers_) return context_;
  if (context_) SWARMLINE_MARK("tls.shows_another_key");
  shown_ = identity.hash();
  vouchers_ = std::move(vouchers);
  return context_ = std::make_shared<TlsContext>(identity, vouchers_);
}

void TlsLobby::accept(Socket socket, const std::string& host, const std::string& remote,
                      std::function<void(TlsLink)> on_link) {
  if (!ration_.allows(host, runtime_.now())) {
    SWARMLINE_MARK("tls.rationed");
    ++counters_.handshakes_rationed;
    return failed(fmt::format("too many handshakes from {} have failed", host));
  }
  const auto [id, crowded_out] = strangers_.add(host, runtime_.now());
  if (crowded_out) drop(*crowded_out);
  prepare(socket);
  const auto handshake = std::make_shared<TlsHandshake>(
      runtime_, context(), guard_, handshake_max_, std::move(socket), remote, std::nullopt,
      [this, id, on_link = std::move(on_link)](Result<TlsLink> link) {
        strangers_.remove(id);
        const auto over = accepted_.extract(id);
        if (!link && !over.empty()) charge(over.mapped());
        if (!link) return failed(link.error().what);
        on_link(std::move(*link));
      });
  accepted_[id] = {.host = host, .handshake = handshake};
  handshake->start();
}

// Who opens many crowds out itself: whoever comes next has a place.
void TlsLobby::drop(Strangers::Id id) {
  SWARMLINE_MARK("tls.crowded_out");
  const auto dropped = accepted_.extract(id);
  strangers_.remove(id);
  ++counters_.handshakes_dropped;
  if (dropped.empty()) return failed("too many links say nothing");
  charge(dropped.mapped());
  dropped.mapped().handshake->stop();
  failed(fmt::format("too many links say nothing; {} has opened more", dropped.mapped().host));
}

void TlsLobby::charge(const Accepted& failed) {
  if (failed.handshake->answered()) ration_.charge(failed.host, runtime_.now());
}

std::shared_ptr<TlsHandshake> TlsLobby::dial(Socket socket, const Address& address,
                                             TlsHandshake::Done on_done) {
  prepare(socket);
  return std::make_shared<TlsHandshake>(runtime_, context(), guard_, handshake_max_,
                                        std::move(socket), to_string(address), address,
                                        std::move(on_done));
}

void TlsLobby::stop() {
  for (const auto& [id, accepted] : std::exchange(accepted_, {})) {
    strangers_.remove(id);
    accepted.handshake->stop();
  }
}

void TlsLobby::failed(const std::string& why) {
  ++counters_.handshakes_failed;
  if (const auto times = lines_.happened(runtime_.now()))
    log(LogLevel::kWarn, "a link was not taken: {} ({} such)", why, times);
}

}  // namespace swarmline
