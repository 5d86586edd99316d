// Frames over TCP. Boost.Asio is seen only by the .cc files; sockets are read and written by
// gathering system calls, so that a payload's bytes go from the tensor's buffer to the kernel and
// from the kernel into the received buffer.
//   Ownership: the AsioRuntime outlives the network. Destroying the network closes listeners and
//              connections without callbacks.
//   Thread:    control thread. With a guard, two to four threads of its own seal and open bulk;
//              destroying the network waits for what they have in hand.
//   Errors:    as engine/net/network.h. Bytes that are no frame are counted, logged, and end their
//              connection.
//   Bounds:    TcpOptions::queue_bytes_max unsent bytes a connection; kHandlerBytesMax bytes moved
//              by one callback, so that one busy connection does not starve timers. A peer
//              that acknowledges nothing for kSilentPeerMax is gone: neither bytes on their way to
//              it, nor, where there are none, what the kernel asks. With a guard: handshake_max and
//              kLinkWordsMax bytes for a handshake, and as many accepted ones at a time as there
//              may be strangers.
#pragma once

#include <cstdint>
#include <memory>

#include "base/limits.h"
#include "engine/net/link_guard.h"
#include "engine/net/network.h"
#include "engine/net/tcp/handshake_ration.h"
#include "engine/net/tcp/strangers.h"
#include "engine/runtime/asio_runtime.h"

namespace swarmline {

struct TcpOptions {
  std::uint64_t queue_bytes_max = Limits::connection_queue_bytes_max;
  // 0: the kernel's own tuning, which grows to megabytes; a set size is capped by
  // net.core.{r,w}mem_max.
  int socket_buffer_bytes = 0;
  std::uint64_t arrival_bytes_min = Limits::arrival_bytes_min;
  // Every link, dialled or accepted, is TLS 1.3 between keys, and admitted by it; null: all are
  // plain.
  std::shared_ptr<LinkGuard> guard = nullptr;
  Duration handshake_max = std::chrono::seconds(10);  // of a link with a guard, in all
  Strangers::Bounds strangers = {};
  HandshakeRation::Bounds handshakes = {};
};

class TcpNetwork final : public Network {
 public:
  static constexpr std::size_t kHandlerBytesMax = 256 * kKiB;
  static constexpr std::uint64_t kHandlerFramesMax = 1024;  // and those of one system call more
  static constexpr Duration kSilentPeerMax = std::chrono::seconds(30);

  struct Counters {
    std::uint64_t connected = 0, accepted = 0, closed = 0;
    std::uint64_t bad_streams = 0;  // connections ended by bytes that are no frame
    // Of strangers: said nothing whole for too long; gave way to others; held, or did not read, too
    // much.
    std::uint64_t silent_strangers = 0, crowded_out = 0, greedy_strangers = 0;
    std::uint64_t bytes_sent = 0, bytes_received = 0;
    std::uint64_t write_calls = 0, read_calls = 0;  // system calls that moved bytes
    std::uint64_t handshakes_failed = 0;    // accepted links that became none, for whatever reason
    std::uint64_t handshakes_dropped = 0;   // of these, crowded out by others
    std::uint64_t handshakes_rationed = 0;  // of these, not begun: too many of that address failed
  };

  TcpNetwork(AsioRuntime& runtime, TcpOptions options);
  ~TcpNetwork() override;

  Result<Address> listen(const Address& address, Accepted on_accepted) override;
  void connect(const Address& address, Duration timeout, Connected on_connected) override;
  void meet(const Meeting& meeting, Duration timeout, Connected on_connected) override;
  void stop_listening() override;
  Counters counters() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace swarmline
