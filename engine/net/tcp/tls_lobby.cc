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

TlsLobby::TlsLobby(AsioRuntime& runtime, LinkGuard& guard, Duration handshake_max,
                   TcpNetwork::Counters& counters)
    : runtime_(runtime),
      guard_(guard),
      handshake_max_(handshake_max),
      counters_(counters),
      context_(guard.identity()) {}

void TlsLobby::accept(Socket socket, const std::string& host, const std::string& remote,
                      std::function<void(TlsLink)> on_link) {
  if (accepted_.size() >= kHandshakesMax || of_host_[host] >= kOfOneHostMax) {
    SWARMLINE_MARK("tls.too_many_handshakes");
    if (of_host_[host] == 0) of_host_.erase(host);
    ++counters_.handshakes_dropped;
    return failed(fmt::format("{}: too many links that say nothing", remote));
  }
  prepare(socket);
  ++of_host_[host];
  // It is listed until it is done; the list is what keeps it where its socket waits for nothing.
  auto place = std::make_shared<std::weak_ptr<TlsHandshake>>();
  const auto handshake = std::make_shared<TlsHandshake>(
      runtime_, context_, guard_, handshake_max_, std::move(socket), remote, std::nullopt,
      [this, host, place, on_link = std::move(on_link)](Result<TlsLink> link) {
        accepted_.erase(place->lock());
        if (--of_host_[host] == 0) of_host_.erase(host);
        if (!link) return failed(link.error().what);
        on_link(std::move(*link));
      });
  *place = handshake;
  accepted_.insert(handshake);
  handshake->start();
}

std::shared_ptr<TlsHandshake> TlsLobby::dial(Socket socket, const Address& address,
                                             TlsHandshake::Done on_done) {
  prepare(socket);
  return std::make_shared<TlsHandshake>(runtime_, context_, guard_, handshake_max_,
                                        std::move(socket), to_string(address), address,
                                        std::move(on_done));
}

void TlsLobby::stop() {
  for (const auto& handshake : std::exchange(accepted_, {})) handshake->stop();
}

void TlsLobby::failed(const std::string& why) {
  ++counters_.handshakes_failed;
  const Instant now = runtime_.now();
  if (std::exchange(logged_, true) && now - logged_at_ < kLogPause) {
    ++unlogged_;
    return;
  }
  logged_at_ = now;
  const std::uint64_t others = std::exchange(unlogged_, 0);
  log(LogLevel::kWarn, "a link was not taken: {}{}", why,
      others == 0 ? std::string() : fmt::format(" (and {} others before)", others));
}

}  // namespace swarmline
