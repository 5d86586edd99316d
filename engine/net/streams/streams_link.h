// Payloads in pieces over several connections between two processes, each of which is a stream of
// its own to the network: where one can't fill the line, because its window is small for the round
// trip, something on the way bounds each of them, or a lost packet halves it, several carry more.
//   What:      a payload is cut into pieces of kStreamPieceBytes, and each goes to the stream that
//              has the fewest bytes on their way. The other end puts pieces where they belong, and
//              answers each one. Pieces begin at multiples of that size; the last is what is left.
//   Frames:    of kind kStreamPiece: `request` is the payload's number from 0, meta its offset
//              (u64, little-endian), and the payload the piece. Of kind kStreamTaken: meta is the
//              size (u64) of a piece that this end has taken off that stream.
//   Memory:    what is sent stays alive until the other end has answered all of its pieces.
//   Pressure:  pieces that nobody asked for yet are held here, kStreamsWindowBytes of them in all.
//   Errors:    as BulkLink. kPeerGone: one stream has ended. kCorrupt: a frame that is no piece,
//              one beyond its payload, more than the window, or an answer to nothing.
//   Bounds:    kBulkStreamsMax streams; kStreamsWindowBytes in kStreamsPiecesMax pieces sent and
//              not answered, or held, the bytes shared out evenly among the streams.
//   Thread:    control thread. Deterministic over a simulated network.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "engine/net/bulk/bulk_link.h"
#include "engine/net/network.h"
#include "engine/runtime/runtime.h"

namespace swarmline {

inline constexpr std::uint64_t kStreamPieceBytes = 256 * kKiB;
inline constexpr std::uint64_t kStreamsWindowBytes = 32 * kMiB;
inline constexpr std::size_t kStreamsPiecesMax = 512;  // most payloads are one
// The other streams of a link whose first has ended: what is on its way over them has so long.
inline constexpr Duration kStreamsEndTime = std::chrono::seconds(1);

class StreamsLink final : public BulkLink, public std::enable_shared_from_this<StreamsLink> {
 public:
  explicit StreamsLink(Runtime& runtime) : runtime_(runtime) {}

  // Before start(); `hello` is what this end says first over it; without one nothing is said.
  void add(std::shared_ptr<Connection> connection, std::optional<Frame> hello);
  std::uint32_t streams() const { return static_cast<std::uint32_t>(streams_.size()); }

  void start(Handlers handlers) override;
  void send(std::vector<SharedBytes> payload) override;
  void receive(Buffer into) override;
  void close() override;
  bool needs_checksums() const override { return true; }  // of what is put together here, too

 private:
  enum Kind : std::uint16_t { kStreamPiece = 1, kStreamTaken };
  struct Piece {
    std::uint64_t payload = 0, offset = 0;
    SharedBytes bytes;
    std::size_t stream = 0;
  };
  struct Stream {
    std::shared_ptr<Connection> connection;
    std::uint64_t on_their_way = 0;  // bytes that the other end has not answered
    std::deque<std::pair<std::uint64_t, std::uint64_t>> pieces = {};  // payload, bytes
    bool has_ended = false;
  };
  struct Leaving {
    std::vector<SharedBytes> parts;
    std::uint64_t bytes = 0, cut = 0, answered = 0;
  };
  struct Asked {
    Buffer into;
    std::uint64_t from_start = 0;                         // bytes that are there without a gap
    std::map<std::uint64_t, std::uint64_t> further = {};  // behind one: pieces' offsets and ends
  };

  static FrameRoom room(std::uint16_t kind);
  void work_later();
  void work();
  void send_pieces();
  Stream* free_stream(std::uint64_t bytes);
  void heard(std::size_t stream, Frame frame);
  Result<void> take_answer(Stream& stream, const Frame& frame);
  Result<void> take_piece(std::size_t stream, const Frame& frame);
  Result<void> place(const Piece& piece);
  void report_sent();
  void deliver();
  void stream_ended(std::size_t stream, const Error& error);
  void end(Error error);

  Runtime& runtime_;
  Handlers handlers_;
  bool started_ = false, closed_ = false, work_posted_ = false;
  std::vector<Stream> streams_;
  std::size_t pieces_on_their_way_ = 0;
  std::deque<Leaving> leaving_;
  std::uint64_t first_leaving_ = 0;  // its number
  std::deque<Asked> asked_;
  std::uint64_t first_asked_ = 0;                     // its number
  std::uint64_t reported_ = 0;                        // of it
  std::map<std::uint64_t, std::vector<Piece>> held_;  // by payload
  std::uint64_t held_bytes_ = 0;
  std::size_t held_pieces_ = 0;
  TimerId end_timer_;
};

}  // namespace swarmline
