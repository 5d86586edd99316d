#include "pipeline/stage/common/piece_reply.h"

#include <algorithm>

#include "base/hash.h"
#include "base/marks.h"
#include "pipeline/protocol/knobs.h"
#include "pipeline/protocol/message_kinds.h"

namespace swarmline {

namespace {
wire::Piece reply_to(const wire::PieceRequest& request) {
  wire::Piece reply;
  *reply.mutable_to() = request.seat();
  *reply.mutable_blob() = request.blob();
  reply.set_piece(request.piece());
  return reply;
}
}  // namespace

Frame piece_reply(const wire::PieceRequest& request, BytesView held) {
  const std::uint64_t first = std::uint64_t{request.piece()} * knobs().state_piece_bytes;
  if (first >= held.size()) {
    SWARMLINE_MARK("pieces.not_held");
    wire::Piece reply = reply_to(request);
    reply.set_missing(true);
    return make_frame(MessageKind::kPiece, reply);
  }
  return reply_with(
      request,
      SharedBytes(Buffer::copy_of(held.subspan(
          first, std::min<std::uint64_t>(knobs().state_piece_bytes, held.size() - first)))));
}

Frame reply_with(const wire::PieceRequest& request, const SharedBytes& piece) {
  wire::Piece reply = reply_to(request);
  reply.set_checksum(xxh3(piece.view()));
  return make_frame(MessageKind::kPiece, reply, {piece});
}

}  // namespace swarmline
