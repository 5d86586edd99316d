#include "pipeline/stage/state/checkpoint_upload.h"

#include <utility>

#include "base/limits.h"
#include "base/marks.h"
#include "pipeline/protocol/knobs.h"
#include "pipeline/protocol/message_kinds.h"

namespace swarmline {

namespace {

// An embedding that two stages share is stored once, by stage 0.
StageFileImage image_of(const Seat& self, const SavedState& saved, const Buffer& state) {
  std::vector<TensorInfo> tensors;
  std::vector<BytesView> contents;
  for (const SavedTensor& tensor : saved.tensors) {
    if (tensor.tied && self.stage.value != 0) continue;
    tensors.push_back({.name = tensor.name, .dtype = tensor.dtype, .shape = tensor.shape});
    contents.push_back(state.bytes().subspan(tensor.at, tensor.bytes));
  }
  return {std::move(tensors), contents};
}

}  // namespace

CheckpointUpload::CheckpointUpload(Seat self, std::string checkpoint, const SavedState& saved,
                                   Buffer state, Doors doors,
                                   std::function<void(Result<void>)> on_done)
    : self_(self),
      checkpoint_(std::move(checkpoint)),
      state_(std::move(state)),
      image_(image_of(self, saved, state_)),
      doors_(std::move(doors)),
      on_done_(std::move(on_done)) {}

void CheckpointUpload::start() {
  send_next();
}

void CheckpointUpload::send_next() {
  auto bytes = std::make_shared<SharedBytes>();
  doors_.work(
      [self = shared_from_this(), bytes, offset = offset_]() -> Result<void> {
        *bytes = SharedBytes(self->image_.piece(offset, Limits::checkpoint_piece_bytes));
        self->hash_.update(bytes->view());
        return {};
      },
      [self = shared_from_this(), bytes] { self->send(*bytes); });
}

void CheckpointUpload::send(const SharedBytes& bytes) {
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
    piece.set_sha256(hash_.finish_hex());
  }
  call(piece, bytes);
}

void CheckpointUpload::call(const wire::CheckpointPiece& piece, const SharedBytes& bytes) {
  doors_.call(make_frame(MessageKind::kCheckpointPiece, piece, {bytes}),
              [self = shared_from_this(), piece, bytes](const Result<Frame>& reply) {
                if (!reply && reply.error().code == ErrorCode::kDeadline) {
                  SWARMLINE_MARK("checkpoint_upload.piece_again");
                  return self->doors_.later(knobs().piece_again,
                                            [self, piece, bytes] { self->call(piece, bytes); });
                }
                if (!reply) return self->on_done_(std::unexpected(reply.error()));
                if (piece.last()) return self->on_done_({});
                self->send_next();
              });
}

}  // namespace swarmline
