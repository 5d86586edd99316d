// Frames whose payload is lent: as much as the socket takes leaves at once, from where it lies. Of
// the rest is copied what is lent for the call alone.
#include <array>
#include <limits.h>
#include <sys/uio.h>
#include <utility>

#include "engine/net/tcp/tcp_connection.h"

namespace swarmline {

void TcpConnection::send_lent(Frame frame) {
  // Whoever waits for the socket was told that it is full, and hears when it is not.
  if (flush_pending_ || secured_ || travels_in_pieces(frame) || !later_.empty()) {
    frame.hold_payload();
    return send(std::move(frame));
  }
  frame.flags &= ~kFrameFlagAhead;
  if (!has_room_for(frame.wire_bytes())) return;
  queue_.push_back(outgoing(std::move(frame)));
  unsent_bytes_ += queue_.back().bytes;
  ++counters_.frames_sent;
  std::array<struct iovec, IOV_MAX> parts;
  // Whatever goes wrong here, the flush that follows meets it, too, and says so.
  if (const ssize_t sent = send_some(parts.data(), gather(parts.data())); sent > 0)
    written(static_cast<std::size_t>(sent));
  if (queue_.empty()) return;
  for (SharedBytes& part : queue_.back().payload) part = part.held();
  post_flush();
}

}  // namespace swarmline
