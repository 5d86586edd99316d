// The bulk-link door, beside the control network: payloads between the two processes of a
// Connection that go another way than its frames. What a payload is, and in which order it is
// delivered, its Connection says (bulk_connection.h); a link moves bytes.
//   What:      an ordered, reliable, bidirectional channel of payloads. Both ends know from
//              elsewhere how long each one is: it is sent whole, and asked for with a buffer of
//              that size.
//   Memory:    host memory. What is sent stays alive until on_sent; what is asked for belongs to
//              the link until on_received, and is dropped with it.
//   Thread:    control thread. No callback is called inside start(), send(), receive() or close().
//   Order:     payloads arrive in the order in which they were sent, each in the first buffer that
//              is still to be filled.
//   Pressure:  nothing of a payload that was not asked for takes memory of the receiver's, but for
//              what the backend names as its bound. The sender waits meanwhile, for ever: whoever
//              uses the link has the deadline.
//   Errors:    on_closed, once, last: kPeerGone: the other end closed its link or is no more, as
//              far as the backend notices (its Connection does); kCorrupt: it breaks the backend's
//              rules. What was sent before the other end closed in good order is received first.
//   Ends:      close() ends both ways at once, and calls nothing any more. What on_sent was called
//              for still arrives.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"

namespace swarmline {

class BulkLink {
 public:
  struct Handlers {
    // Of the payload that is being received: so many of its bytes are in its buffer, more than the
    // time before and not all. May be empty; a backend that fills a buffer at once never calls it.
    std::function<void(std::uint64_t bytes_there)> on_arriving = {};
    std::function<void(Buffer payload)> on_received;
    std::function<void()> on_sent;  // the earliest of those on their way: its memory is free
    std::function<void(Error)> on_closed;
  };

  virtual ~BulkLink() = default;
  virtual void start(Handlers handlers) = 0;  // once, before anything else
  // The parts, one after the other: at least one byte. What of them is lent has a Lender.
  virtual void send(std::vector<SharedBytes> payload) = 0;
  virtual void receive(Buffer into) = 0;  // at least one byte
  virtual void close() = 0;
  // Its bytes leave this machine, and nobody checks them on their way: whoever uses it has to.
  virtual bool needs_checksums() const = 0;
};

}  // namespace swarmline
