// Links on their way to be authenticated. For the files of this folder.
//   What:      begins handshakes; of accepted ones it hands on those that succeed, and counts and
//              logs the others, in a line a second at most.
//   Ownership: the runtime, the guard and the counters outlive it. Thread: control thread.
//   Errors:    none of its own. Bounds: kHandshakesMax accepted ones at a time, kOfOneHostMax of
//              them from one address; the next are closed at once, and may come again.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "engine/net/tcp/tcp_network.h"
#include "engine/net/tcp/tls_handshake.h"

namespace swarmline {

class TlsLobby {
 public:
  static constexpr std::size_t kHandshakesMax = 1024;
  static constexpr std::size_t kOfOneHostMax = 512;
  static constexpr Duration kLogPause = std::chrono::seconds(1);

  TlsLobby(AsioRuntime& runtime, LinkGuard& guard, Duration handshake_max,
           TcpNetwork::Counters& counters);

  using Socket = TlsHandshake::Socket;
  void accept(Socket socket, const std::string& host, const std::string& remote,
              std::function<void(TlsLink)> on_link);
  // Not started yet.
  std::shared_ptr<TlsHandshake> dial(Socket socket, const Address& address,
                                     TlsHandshake::Done on_done);
  void stop();  // ends those that were accepted, without a word

 private:
  void failed(const std::string& why);

  AsioRuntime& runtime_;
  LinkGuard& guard_;
  const Duration handshake_max_;
  TcpNetwork::Counters& counters_;
  TlsContext context_;
  std::set<std::shared_ptr<TlsHandshake>> accepted_;
  std::map<std::string, std::size_t> of_host_;
  Instant logged_at_{};
  std::uint64_t unlogged_ = 0;
  bool logged_ = false;
};

}  // namespace swarmline
