#include "engine/net/frame_reader.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/limits.h"
#include "base/marks.h"
#include "engine/net/message_pieces.h"

namespace swarmline {

MutableBytes FrameReader::sink_rest() {
  switch (state_) {
    case State::kHeader:
      return {};
    case State::kMeta:
      return {reinterpret_cast<std::byte*>(meta_.data()) + filled_, meta_.size() - filled_};
    case State::kPayload:
      return payload_.bytes().subspan(filled_);
  }
  return {};
}

void FrameReader::take_only(FrameRoom (*room)(std::uint16_t kind), bool wary) {
  room_ = room;
  wary_ = wary;
}

std::array<MutableBytes, 2> FrameReader::space() {
  if (staging_.empty()) staging_ = Buffer(kStagingBytes);
  // Less than a header is left after parsing, so moving it to the front costs nothing.
  if (begin_ > 0) {
    std::memmove(staging_.data(), staging_.data() + begin_, staged());
    end_ -= begin_;
    begin_ = 0;
  }
  return {sink_rest(), staging_.bytes().subspan(end_)};
}

Result<void> FrameReader::commit(std::size_t count) {
  const std::size_t direct = std::min(count, sink_rest().size());
  filled_ += direct;
  end_ += count - direct;
  SWARMLINE_CHECK(end_ <= staging_.size());
  return parse();
}

bool FrameReader::sink_is_full() const {
  return filled_ == (state_ == State::kMeta ? header_.meta_bytes : payload_.size());
}

// Whoever announces much has to send it, too.
void FrameReader::make_room() {
  if (state_ != State::kMeta || filled_ < meta_.size()) return;
  const std::size_t ahead = std::max<std::size_t>(
      filled_, wary_ ? Limits::stranger_meta_bytes_max : Limits::frame_meta_ahead_bytes_max);
  meta_.resize(std::min<std::size_t>(header_.meta_bytes, filled_ + ahead));
}

Buffer FrameReader::rest() {
  if (begin_ < end_) return {};
  begin_ = end_ = 0;
  return std::exchange(staging_, Buffer());
}

void FrameReader::lend(Buffer staging) {
  SWARMLINE_CHECK(staging.empty() || staging.size() == kStagingBytes);
  if (staging_.empty()) staging_ = std::move(staging);
}

std::optional<Frame> FrameReader::next() {
  if (ready_.empty()) return std::nullopt;
  Frame frame = std::move(ready_.front());
  ready_.pop_front();
  return frame;
}

std::optional<Arrival> FrameReader::arriving() const {
  if (state_ != State::kPayload) return std::nullopt;
  return Arrival{.kind = header_.kind,
                 .request = header_.request,
                 .flags = header_.flags,
                 .meta = meta_,
                 .arrived = payload_.bytes().first(filled_),
                 .payload_bytes = payload_.size()};
}

Result<void> FrameReader::parse() {
  while (true) {
    if (state_ == State::kHeader) {
      stopped_ = wary_ && !ready_.empty();
      if (stopped_ || staged() < kFrameHeaderBytes) return {};
      SWARMLINE_TRY(begin_frame());
    }
    make_room();
    const MutableBytes rest = sink_rest();
    const std::size_t take = std::min(rest.size(), staged());
    if (take > 0) std::memcpy(rest.data(), staging_.data() + begin_, take);
    begin_ += take;
    filled_ += take;
    if (take < rest.size()) return {};
    if (!sink_is_full()) continue;
    if (state_ == State::kMeta) {
      SWARMLINE_TRY(end_meta());
    } else {
      end_frame();
    }
  }
}

Result<void> FrameReader::begin_frame() {
  auto header = decode_header({staging_.data() + begin_, kFrameHeaderBytes});
  if (!header) return std::unexpected(std::move(header).error());
  if (const FrameRoom room = room_ ? room_(header->kind) : FrameRoom{};
      header->meta_bytes > room.meta_bytes_max || header->payload_bytes > room.payload_bytes_max) {
    SWARMLINE_MARK("frame_reader.no_room");
    return fail(ErrorCode::kCorrupt,
                fmt::format("a frame of kind {} announces {} bytes of meta and {} of payload, {} "
                            "and {} are taken here",
                            header->kind, header->meta_bytes, header->payload_bytes,
                            room.meta_bytes_max, room.payload_bytes_max));
  }
  if (header->meta_bytes > kFrameMetaBytesTaken)
    return fail(ErrorCode::kCorrupt,
                fmt::format("a frame of kind {} announces {} bytes of meta; of longer ones pieces "
                            "of at most {} are taken",
                            header->kind, header->meta_bytes, kFrameMetaBytesTaken));
  header_ = *header;
  begin_ += kFrameHeaderBytes;
  meta_.clear();
  filled_ = 0;
  state_ = State::kMeta;
  return {};
}

Result<void> FrameReader::end_meta() {
  if (hash_meta(as_bytes(meta_)) != header_.meta_hash) {
    return fail(ErrorCode::kCorrupt, "frame meta does not match its hash");
  }
  try {
    payload_ = Buffer(header_.payload_bytes);
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kRefused,
                fmt::format("no memory for a payload of {} bytes", header_.payload_bytes));
  }
  filled_ = 0;
  state_ = State::kPayload;
  return {};
}

void FrameReader::end_frame() {
  Frame frame{.kind = header_.kind,
              .request = header_.request,
              .flags = header_.flags,
              .meta = std::move(meta_),
              .payload = {},
              .received_over = {}};
  if (!payload_.empty()) frame.payload.emplace_back(std::move(payload_));
  ready_.push_back(std::move(frame));
  meta_.clear();
  payload_ = Buffer();
  filled_ = 0;
  state_ = State::kHeader;
}

}  // namespace swarmline
