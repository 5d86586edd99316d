#include "pipeline/stage/state/checkpoint_upload.h"

#include <algorithm>
#include <utility>

#include "base/limits.h"
#include "base/marks.h"
#include "pipeline/protocol/knobs.h"
#include "pipeline/protocol/message_kinds.h"

namespace swarmline {

namespace {

// An embedding that two stages share is stored once, by stage 0.
StageFileImage image_of(const Seat& self, const CheckpointUpload::Part& part,
                        const SavedState& saved, const Buffer& state) {
  const SavedPart here = part_of(saved, part.part, part.parts);
  std::vector<TensorInfo> tensors;
  std::vector<BytesView> contents;
  for (const SavedTensor& tensor : here.tensors) {
    if (tensor.tied && self.stage.value != 0) continue;
    tensors.push_back({.name = tensor.name, .dtype = tensor.dtype, .shape = tensor.shape});
    contents.push_back(state.bytes().subspan(tensor.at - here.first, tensor.bytes));
  }
  return {std::move(tensors), contents};
}

}  // namespace

CheckpointUpload::CheckpointUpload(Seat self, Part part, const SavedState& saved, Buffer state,
                                   Doors doors, std::function<void(Result<void>)> on_done)
    : self_(self),
      part_(std::move(part)),
      state_(std::move(state)),
      image_(image_of(self, part_, saved, state_)),
      doors_(std::move(doors)),
      on_done_(std::move(on_done)) {}

wire::CheckpointPiece CheckpointUpload::piece_at(std::uint64_t offset) const {
  wire::CheckpointPiece piece;
  *piece.mutable_seat() = to_wire(self_);
  piece.set_checkpoint(part_.checkpoint);
  piece.set_stage(self_.stage.value);
  piece.set_part(part_.part);
  piece.set_offset(offset);
  piece.set_written(doors_.write != nullptr);
  return piece;
}

// Whoever writes hears first that the folder is there to be written into.
void CheckpointUpload::start() {
  if (!doors_.write) return send_next();
  call(piece_at(0), {});
}

void CheckpointUpload::send_next() {
  if (doors_.write) return write_next();
  auto bytes = std::make_shared<SharedBytes>();
  doors_.work(
      [self = shared_from_this(), bytes, offset = offset_]() -> Result<void> {
        *bytes = SharedBytes(self->image_.piece(offset, Limits::checkpoint_piece_bytes));
        self->hash_.update(bytes->view());
        return {};
      },
      [self = shared_from_this(), bytes](const Result<void>& done) {
        done ? self->send(bytes->size(), *bytes) : self->give_up(done.error());
      });
}

void CheckpointUpload::write_next() {
  const std::uint64_t size =
      std::min<std::uint64_t>(Limits::checkpoint_piece_bytes, image_.size_bytes() - offset_);
  doors_.work(
      [self = shared_from_this(), offset = offset_, size]() -> Result<void> {
        if (self->piece_.size() < size) self->piece_ = Buffer(size);
        const MutableBytes bytes = self->piece_.bytes().first(size);
        self->image_.read(offset, bytes);
        self->hash_.update(bytes);
        return self->doors_.write(bytes, offset + size == self->image_.size_bytes());
      },
      [self = shared_from_this(), size](const Result<void>& done) {
        done ? self->send(size, {}) : self->give_up(done.error());
      });
}

void CheckpointUpload::send(std::uint64_t size, const SharedBytes& bytes) {
  wire::CheckpointPiece piece = piece_at(offset_);
  offset_ += size;
  piece.set_last(offset_ == image_.size_bytes());
  if (piece.last() || piece.written()) piece.set_size(offset_);
  if (piece.last()) piece.set_sha256(hash_.finish_hex());
  call(piece, bytes);
}

void CheckpointUpload::call(const wire::CheckpointPiece& piece, const SharedBytes& bytes) {
  Frame frame = piece.written() ? make_frame(MessageKind::kCheckpointPiece, piece)
                                : make_frame(MessageKind::kCheckpointPiece, piece, {bytes});
  doors_.call(std::move(frame),
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

// Nobody waits for the answer: there is nothing more to say.
void CheckpointUpload::give_up(const Error& error) {
  SWARMLINE_MARK("checkpoint_upload.not_written");
  wire::CheckpointPiece piece = piece_at(offset_);
  piece.set_error(error.what);
  doors_.call(make_frame(MessageKind::kCheckpointPiece, piece), [](const Result<Frame>&) {});
  on_done_(std::unexpected(error));
}

}  // namespace swarmline
