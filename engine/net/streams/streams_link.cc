#include "engine/net/streams/streams_link.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"

namespace swarmline {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are copied as they are");

std::string meta_of(std::uint64_t number) {
  std::string meta(sizeof(number), '\0');
  std::memcpy(meta.data(), &number, sizeof(number));
  return meta;
}

std::optional<std::uint64_t> number_in(const std::string& meta) {
  std::uint64_t number = 0;
  if (meta.size() != sizeof(number)) return std::nullopt;
  std::memcpy(&number, meta.data(), sizeof(number));
  return number;
}

std::vector<SharedBytes> part_of(const std::vector<SharedBytes>& parts, std::uint64_t at,
                                 std::uint64_t bytes) {
  std::vector<SharedBytes> part;
  for (const SharedBytes& one : parts) {
    if (bytes == 0) break;
    if (at >= one.size()) {
      at -= one.size();
      continue;
    }
    const std::uint64_t count = std::min<std::uint64_t>(bytes, one.size() - at);
    part.push_back(one.slice(at, count));
    bytes -= count;
    at = 0;
  }
  return part;
}

}  // namespace

FrameRoom StreamsLink::room(std::uint16_t) {
  return {.meta_bytes_max = sizeof(std::uint64_t), .payload_bytes_max = kStreamPieceBytes};
}

void StreamsLink::add(std::shared_ptr<Connection> connection, std::optional<Frame> hello) {
  const std::size_t index = streams_.size();
  SWARMLINE_CHECK(!started_ && index < kBulkStreamsMax);
  streams_.push_back({.connection = connection});
  connection->start({
      .on_frame =
          [weak = weak_from_this(), index](Frame frame) {
            if (const auto self = weak.lock()) self->heard(index, std::move(frame));
          },
      .on_closed =
          [weak = weak_from_this(), index](const Error& error) {
            if (const auto self = weak.lock()) self->stream_ended(index, error);
          },
  });
  connection->believe({.room = room});
  if (hello) connection->send(std::move(*hello));
}

void StreamsLink::start(Handlers handlers) {
  handlers_ = std::move(handlers);
  started_ = true;
  work_later();
}

void StreamsLink::send(std::vector<SharedBytes> payload) {
  if (closed_) return;
  std::uint64_t bytes = 0;
  for (const SharedBytes& part : payload) bytes += part.size();
  leaving_.push_back({.parts = std::move(payload), .bytes = bytes});
  send_pieces();
}

void StreamsLink::receive(Buffer into) {
  if (closed_) return;
  asked_.push_back({.into = std::move(into)});
  work_later();
}

void StreamsLink::work_later() {
  if (closed_ || std::exchange(work_posted_, true)) return;
  runtime_.post([weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self) return;
    self->work_posted_ = false;
    self->work();
  });
}

// What came before somebody asked for it, and what ended before anybody listened.
void StreamsLink::work() {
  while (!closed_ && !held_.empty() && held_.begin()->first < first_asked_ + asked_.size()) {
    const std::vector<Piece> pieces = std::move(held_.extract(held_.begin()).mapped());
    for (const Piece& piece : pieces) {
      held_bytes_ -= piece.bytes.size();
      --held_pieces_;
      if (const auto placed = place(piece); !placed) return end(placed.error());
    }
    deliver();
  }
  if (closed_ || !started_) return;
  const auto ended = std::ranges::find(streams_, true, &Stream::has_ended);
  if (ended != streams_.end() && end_timer_ == TimerId{})
    stream_ended(static_cast<std::size_t>(ended - streams_.begin()),
                 {ErrorCode::kPeerGone, "one of its streams has ended"});
}

// ---- What leaves --------------------------------------------------------------------------------

StreamsLink::Stream* StreamsLink::free_stream(std::uint64_t bytes) {
  Stream& least = *std::ranges::min_element(streams_, {}, &Stream::on_their_way);
  const bool has_room = least.on_their_way + bytes <= kStreamsWindowBytes / streams_.size() &&
                        pieces_on_their_way_ < kStreamsPiecesMax;
  return has_room ? &least : nullptr;
}

void StreamsLink::send_pieces() {
  for (std::size_t i = 0; i < leaving_.size(); ++i) {
    Leaving& leaving = leaving_[i];
    while (leaving.cut < leaving.bytes) {
      const std::uint64_t bytes = std::min(kStreamPieceBytes, leaving.bytes - leaving.cut);
      Stream* const stream = free_stream(bytes);
      if (stream == nullptr) return;
      ++pieces_on_their_way_;
      stream->on_their_way += bytes;
      stream->pieces.emplace_back(first_leaving_ + i, bytes);
      Frame piece{.kind = kStreamPiece,
                  .request = first_leaving_ + i,
                  .meta = meta_of(leaving.cut),
                  .payload = part_of(leaving.parts, leaving.cut, bytes)};
      leaving.cut += bytes;
      stream->connection->send(std::move(piece));
    }
  }
}

Result<void> StreamsLink::take_answer(Stream& stream, const Frame& frame) {
  const auto bytes = number_in(frame.meta);
  if (!bytes || stream.pieces.empty() || stream.pieces.front().second != *bytes)
    return fail(ErrorCode::kCorrupt, "a stream's piece was answered that is not on its way");
  Leaving& leaving = leaving_[stream.pieces.front().first - first_leaving_];
  stream.pieces.pop_front();
  --pieces_on_their_way_;
  stream.on_their_way -= *bytes;
  leaving.answered += *bytes;
  report_sent();
  if (!closed_) send_pieces();
  return {};
}

void StreamsLink::report_sent() {
  while (!closed_ && !leaving_.empty() && leaving_.front().answered == leaving_.front().bytes) {
    leaving_.pop_front();
    ++first_leaving_;
    if (handlers_.on_sent) handlers_.on_sent();
  }
}

// ---- What comes ---------------------------------------------------------------------------------

void StreamsLink::heard(std::size_t stream, Frame frame) {
  if (closed_) return;
  const auto self = shared_from_this();
  const Result<void> taken =
      frame.kind == kStreamTaken ? take_answer(streams_[stream], frame) : take_piece(stream, frame);
  if (!taken) return end(taken.error());
  if (!closed_ && started_) deliver();
}

Result<void> StreamsLink::take_piece(std::size_t stream, const Frame& frame) {
  const auto offset = number_in(frame.meta);
  if (!offset || frame.kind != kStreamPiece || frame.payload_bytes() == 0 ||
      frame.request < first_asked_)
    return fail(ErrorCode::kCorrupt, "a stream brought what is no piece");
  Piece piece{.payload = frame.request,
              .offset = *offset,
              .bytes = frame.payload.front(),
              .stream = stream};
  // Each stream's pieces are answered in the order in which they came over it.
  const bool waits = !held_.empty() && held_.begin()->first <= piece.payload;
  if (started_ && !waits && piece.payload < first_asked_ + asked_.size()) return place(piece);
  held_bytes_ += piece.bytes.size();
  if (held_bytes_ > kStreamsWindowBytes || ++held_pieces_ > kStreamsPiecesMax)
    return fail(ErrorCode::kCorrupt,
                fmt::format("{} bytes came over streams for payloads that were not asked for",
                            held_bytes_));
  held_[piece.payload].push_back(std::move(piece));
  return {};
}

Result<void> StreamsLink::place(const Piece& piece) {
  Asked& asked = asked_[piece.payload - first_asked_];
  const std::uint64_t size = asked.into.size(), bytes = piece.bytes.size();
  const bool fits = piece.offset % kStreamPieceBytes == 0 && piece.offset < size &&
                    bytes == std::min(kStreamPieceBytes, size - piece.offset);
  if (!fits || piece.offset < asked.from_start || asked.further.contains(piece.offset))
    return fail(ErrorCode::kCorrupt,
                fmt::format("a stream brought {} bytes at {} of a payload of {}{}", bytes,
                            piece.offset, size, fits ? ", which are here" : ""));
  std::memcpy(asked.into.data() + piece.offset, piece.bytes.data(), bytes);
  asked.further[piece.offset] = piece.offset + bytes;
  while (!asked.further.empty() && asked.further.begin()->first == asked.from_start) {
    asked.from_start = asked.further.begin()->second;
    asked.further.erase(asked.further.begin());
  }
  streams_[piece.stream].connection->send({.kind = kStreamTaken, .meta = meta_of(bytes)});
  return {};
}

void StreamsLink::deliver() {
  while (!closed_ && !asked_.empty()) {
    Asked& first = asked_.front();
    if (first.from_start < first.into.size()) break;
    Buffer payload = std::move(first.into);
    asked_.pop_front();
    ++first_asked_;
    reported_ = 0;
    handlers_.on_received(std::move(payload));
  }
  if (closed_ || asked_.empty() || asked_.front().from_start <= reported_) return;
  reported_ = asked_.front().from_start;
  if (handlers_.on_arriving) handlers_.on_arriving(reported_);
}

// ---- Ends ---------------------------------------------------------------------------------------

// Each one is closed by itself: what the others still bring was sent before.
void StreamsLink::stream_ended(std::size_t stream, const Error& error) {
  if (closed_) return;
  const auto self = shared_from_this();
  streams_[stream].has_ended = true;
  if (!started_) return;  // who starts it hears of it then
  if (error.code != ErrorCode::kPeerGone)
    return end({error.code, fmt::format("one of its streams ended: {}", error.what)});
  Error gone{ErrorCode::kPeerGone, fmt::format("one of its streams ended: {}", error.what)};
  if (std::ranges::all_of(streams_, &Stream::has_ended)) return end(std::move(gone));
  if (end_timer_ != TimerId{}) return;
  end_timer_ = runtime_.call_after(kStreamsEndTime, [weak = weak_from_this(), gone] {
    if (const auto still = weak.lock(); still && !still->closed_) still->end(gone);
  });
}

void StreamsLink::end(Error error) {
  const auto self = shared_from_this();
  const Handlers handlers = std::exchange(handlers_, {});
  close();
  if (handlers.on_closed) handlers.on_closed(std::move(error));
}

void StreamsLink::close() {
  if (std::exchange(closed_, true)) return;
  runtime_.cancel(end_timer_);
  leaving_.clear();
  asked_.clear();
  held_.clear();
  for (const Stream& stream : streams_)
    if (!stream.has_ended) stream.connection->close();
}

}  // namespace swarmline
