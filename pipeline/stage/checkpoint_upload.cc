#include "pipeline/stage/checkpoint_upload.h"

#include <utility>

#include "engine/base/limits.h"
#include "pipeline/protocol/message_kinds.h"

namespace swarmline {

namespace {

// An embedding that two stages share is stored once, by stage 0.
std::vector<ArenaPart> parts_of(const Seat& self, const ParameterLayout& layout,
                                const Buffer& parameters) {
  ArenaPart part;
  part.layout = layout;
  part.arena = parameters.bytes();
  part.with_tied = self.stage.value == 0;
  return {part};
}

}  // namespace

CheckpointUpload::CheckpointUpload(Seat self, std::string checkpoint, const ParameterLayout& layout,
                                   Buffer parameters, Call call,
                                   std::function<void(Result<void>)> on_done)
    : self_(self),
      checkpoint_(std::move(checkpoint)),
      parameters_(std::move(parameters)),
      image_(parts_of(self, layout, parameters_)),
      call_(std::move(call)),
      on_done_(std::move(on_done)) {}

void CheckpointUpload::start() {
  send_next();
}

void CheckpointUpload::send_next() {
  SharedBytes bytes(image_.piece(offset_, Limits::checkpoint_piece_bytes));
  wire::CheckpointPiece piece;
  *piece.mutable_seat() = to_wire(self_);
  piece.set_checkpoint(checkpoint_);
  piece.set_stage(self_.stage.value);
  piece.set_offset(offset_);
  offset_ += bytes.size();
  const bool last = offset_ == image_.size_bytes();
  piece.set_last(last);
  if (last) {
    piece.set_size(image_.size_bytes());
    piece.set_sha256(image_.sha256());
  }
  call_(make_frame(MessageKind::kCheckpointPiece, piece, {bytes}),
        [self = shared_from_this(), last](Result<Frame> reply) {
          if (!reply) return self->on_done_(std::unexpected(reply.error()));
          if (last) return self->on_done_({});
          self->send_next();
        });
}

}  // namespace swarmline
