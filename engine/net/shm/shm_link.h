// A bulk link between two processes of one machine: a ring of shared memory each way, and a Unix
// socket over which each end wakes the other and hears that it is gone. Bytes are copied twice, on
// the control threads of both ends, which overlap.
//   Bounds: kShmRingBytes on their way, each way; kShmHandlerBytesMax copied by one callback.
//   The rest: engine/net/bulk/bulk_link.h.
#pragma once

#include <deque>
#include <memory>

#include <boost/asio/local/stream_protocol.hpp>

#include "engine/net/bulk/bulk_link.h"
#include "engine/net/shm/shm_segment.h"
#include "engine/runtime/asio_runtime.h"

namespace swarmline {

inline constexpr std::size_t kShmHandlerBytesMax = 1 * kMiB;

class ShmLink final : public BulkLink, public std::enable_shared_from_this<ShmLink> {
 public:
  using Socket = boost::asio::local::stream_protocol::socket;

  // `first`: this end made the segment.
  ShmLink(AsioRuntime& runtime, Socket socket, std::unique_ptr<ShmSegment> segment, bool first);

  void start(Handlers handlers) override;
  void send(std::vector<SharedBytes> payload) override;
  void receive(Buffer into) override;
  void close() override;
  bool needs_checksums() const override { return false; }

 private:
  struct Leaving {
    std::vector<SharedBytes> parts;
    std::size_t part = 0, at = 0;  // the next byte
  };

  void post_work();
  void wait_for_ring();
  void rung();
  void work();
  std::size_t write_from(Leaving& leaving);
  std::size_t write_some();
  std::size_t read_some();
  void report();
  void ring();
  bool empty_socket();
  void end(Error error);

  AsioRuntime& runtime_;
  Socket socket_;
  std::unique_ptr<ShmSegment> segment_;
  ShmRingWriter writer_;
  ShmRingReader reader_;
  Handlers handlers_;
  std::deque<Leaving> leaving_;
  std::deque<Buffer> asked_;
  std::size_t filled_ = 0, reported_ = 0;  // of the first one asked for
  bool work_posted_ = false, closed_ = false;
};

}  // namespace swarmline
