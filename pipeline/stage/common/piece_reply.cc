#include "pipeline/stage/common/piece_reply.h"

#include <algorithm>

#include "base/hash.h"
#include "base/limits.h"
#include "base/marks.h"
#include "pipeline/protocol/message_kinds.h"

namespace swarmline {

Frame piece_reply(const wire::PieceRequest& request, BytesView held) {
  wire::Piece reply;
  *reply.mutable_to() = request.seat();
  *reply.mutable_blob() = request.blob();
  reply.set_piece(request.piece());
  const std::uint64_t first = std::uint64_t{request.piece()} * Limits::state_piece_bytes;
  if (first >= held.size()) {
    SWARMLINE_MARK("pieces.not_held");
    reply.set_missing(true);
    return make_frame(MessageKind::kPiece, reply);
  }
  const SharedBytes piece(Buffer::copy_of(held.subspan(
      first, std::min<std::uint64_t>(Limits::state_piece_bytes, held.size() - first))));
  reply.set_checksum(xxh3(piece.view()));
  return make_frame(MessageKind::kPiece, reply, {piece});
}

}  // namespace swarmline
