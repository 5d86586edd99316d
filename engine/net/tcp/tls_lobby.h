// Links on their way to be authenticated. For the files of this folder.
//   What:      begins handshakes; of accepted ones it hands on those that succeed, and counts and
//              logs the others, in a line a second at most.
//   Ownership: the runtime, the guard and the counters outlive it. Thread: control thread.
//   Errors:    none of its own.
//   Bounds:    as many accepted ones at a time as there may be strangers (strangers.h); beyond, the
//              one that began first goes, of the address that has most. Of an address whose
//              handshakes fail, as many a second as handshake_ration.h says.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/line_rate.h"
#include "engine/net/tcp/handshake_ration.h"
#include "engine/net/tcp/strangers.h"
#include "engine/net/tcp/tcp_network.h"
#include "engine/net/tcp/tls_handshake.h"

namespace swarmline {

class TlsLobby {
 public:
  TlsLobby(AsioRuntime& runtime, LinkGuard& guard, const TcpOptions& options,
           TcpNetwork::Counters& counters);

  using Socket = TlsHandshake::Socket;
  void accept(Socket socket, const std::string& host, const std::string& remote,
              std::function<void(TlsLink)> on_link);
  // Not started yet.
  std::shared_ptr<TlsHandshake> dial(Socket socket, const Address& address,
                                     TlsHandshake::Done on_done);
  void stop();  // ends those that were accepted, without a word

 private:
  std::shared_ptr<TlsContext> context();  // of what the guard shows now
  struct Accepted {
    std::string host;
    std::shared_ptr<TlsHandshake> handshake;
  };
  void drop(Strangers::Id id);
  void charge(const Accepted& failed);
  void failed(const std::string& why);

  AsioRuntime& runtime_;
  LinkGuard& guard_;
  const Duration handshake_max_;
  TcpNetwork::Counters& counters_;
  std::shared_ptr<TlsContext> context_;  // of what the guard showed last
  KeyHash shown_;
  std::string vouchers_;
  // The list is what keeps one whose socket waits for nothing.
  std::map<Strangers::Id, Accepted> accepted_;
  Strangers strangers_;
  HandshakeRation ration_;
  LineRate lines_;
};

}  // namespace swarmline
