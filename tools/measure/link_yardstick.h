// What links are measured by: the same bytes over a plain blocking socket.
//   Ends:      within this machine, between this thread and one of its own; or between machines,
//              where who dials says a token first: nothing else is answered.
//   Ownership: a socket that is given is the object's; threads end with theirs. Thread: one.
//   Errors:    false: the other end is gone, or moved nothing for kSocketPatience. A system without
//              loopback is a broken invariant (CHECK).
//   Bounds:    kSocketMessageBytesMax a message; kSocketMeetTime to meet.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "base/bytes.h"
#include "base/result.h"
#include "base/units.h"
#include "engine/net/network.h"

namespace swarmline {

inline constexpr std::chrono::seconds kSocketPatience{60};
inline constexpr std::chrono::seconds kSocketMeetTime{5};
inline constexpr std::uint64_t kSocketMessageBytesMax = 1 * kGiB;

// The far end, which does what the near one asks for.
class RawServer {
 public:
  explicit RawServer(int socket);
  ~RawServer();
  RawServer(const RawServer&) = delete;
  RawServer& operator=(const RawServer&) = delete;

 private:
  int socket_;
  std::thread thread_;
};

class RawLink {
 public:
  RawLink();                     // within this machine
  explicit RawLink(int socket);  // to a RawServer
  ~RawLink();
  RawLink(const RawLink&) = delete;
  RawLink& operator=(const RawLink&) = delete;

  bool receive(std::uint64_t count, MutableBytes into);  // the far end sends it so many times
  bool send(std::uint64_t count, BytesView from);        // until the far end has it all
  bool round_trip(MutableBytes message);                 // there and back

 private:
  int near_ = -1;
  std::optional<RawServer> far_;  // none: it is elsewhere
};

// Where one end waits for the other: a free port.
class RawListener {
 public:
  // `host`: an IP literal, or all addresses of a kind. kIo with a sentence.
  static Result<RawListener> open(const std::string& host);
  RawListener(RawListener&& other) noexcept;
  RawListener& operator=(RawListener&&) = delete;
  ~RawListener();
  std::uint16_t port() const { return port_; }
  // The socket of who says the token; none within kSocketMeetTime.
  std::optional<int> accept(std::string_view token) const;

 private:
  explicit RawListener(int socket) : socket_(socket) {}
  int socket_;
  std::uint16_t port_ = 0;
};
// kPeerGone with a sentence.
Result<int> dial_raw_link(const Address& address, std::string_view token);

}  // namespace swarmline
