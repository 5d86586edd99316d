#include "pipeline/stage/state/checkpoint_upload.h"

#include <utility>

#include "base/limits.h"
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
                                   Buffer state, Work work, Call call,
                                   std::function<void(Result<void>)> on_done)
    : self_(self),
      checkpoint_(std::move(checkpoint)),
      state_(std::move(state)),
      image_(image_of(self, saved, state_)),
      work_(std::move(work)),
      call_(std::move(call)),
      on_done_(std::move(on_done)) {}

void CheckpointUpload::start() {
  send_next();
}

void CheckpointUpload::send_next() {
  auto bytes = std::make_shared<SharedBytes>();
  work_(
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
  call_(make_frame(MessageKind::kCheckpointPiece, piece, {bytes}),
        [self = shared_from_this(), last](Result<Frame> reply) {
          if (!reply) return self->on_done_(std::unexpected(reply.error()));
          if (last) return self->on_done_({});
          self->send_next();
        });
}

}  // namespace swarmline
