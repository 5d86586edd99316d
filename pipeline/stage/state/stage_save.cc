#include "pipeline/stage/state/stage_save.h"

#include <memory>
#include <utility>

#include "base/log.h"
#include "base/marks.h"
#include "pipeline/protocol/message_kinds.h"
#include "pipeline/stage/state/checkpoint_upload.h"

namespace swarmline {

Result<void> StageSave::begin(std::uint64_t version, Version committed,
                              const std::string& checkpoint) {
  if (version != committed.value)
    return fail(ErrorCode::kIncompatible,
                fmt::format("asked to save version {}, has {}", version, committed.value));
  guard_.drop_callbacks();  // whatever is still sent was given up
  auto copy = std::make_shared<Result<Buffer>>(Buffer());
  const bool whole = context_.config.checkpoint.optimizer;
  jobs_.run(
      [this, copy, whole]() -> Result<void> {
        *copy =
            whole ? context_.state.save() : Buffer::copy_of(context_.state.committed_parameters());
        return {};
      },
      guard_.wrap([this, copy, whole, checkpoint] {
        if (!*copy) return say_failed(checkpoint, copy->error());
        upload(checkpoint, whole, std::move(**copy));
      }));
  return {};
}

// Without a copy there is nothing to send; the stage serves on.
void StageSave::say_failed(const std::string& checkpoint, const Error& error) {
  SWARMLINE_MARK("stage_save.failed");
  log(LogLevel::kWarn, "a checkpoint of this stage can't be made: {}", error.what);
  wire::CheckpointPiece piece;
  *piece.mutable_seat() = to_wire(context_.self);
  piece.set_checkpoint(checkpoint);
  piece.set_stage(context_.self.stage.value);
  piece.set_error(error.what);
  context_.call_coordinator(make_frame(MessageKind::kCheckpointPiece, piece),
                            [](const Result<Frame>&) {});
}

void StageSave::upload(const std::string& checkpoint, bool whole, Buffer state) {
  const SavedState saved = saved_state(context_.config, context_.model.layout(), whole);
  std::make_shared<CheckpointUpload>(
      context_.self, checkpoint, saved, std::move(state),
      CheckpointUpload::Doors{.work = guard_.wrap([this](auto body, auto done) {
                                jobs_.run(std::move(body), std::move(done));
                              }),
                              .call = context_.call_coordinator,
                              .later = guard_.wrap([this](Duration wait, auto then) {
                                context_.runtime.call_after(wait, guard_.wrap(std::move(then)));
                              })},
      [](const Result<void>& done) {
        if (!done) log(LogLevel::kWarn, "the checkpoint was not sent: {}", done.error().what);
      })
      ->start();
}

}  // namespace swarmline
