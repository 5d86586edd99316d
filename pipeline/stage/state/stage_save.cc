#include "pipeline/stage/state/stage_save.h"

#include <memory>
#include <utility>

#include "base/log.h"
#include "base/marks.h"
#include "pipeline/protocol/message_kinds.h"

namespace swarmline {

void StageSave::begin(const wire::SaveStage& save, Version committed) {
  if (save.version() != committed.value)
    return say_failed(
        save, fmt::format("asked to save version {}, it has {}", save.version(), committed.value));
  guard_.drop_callbacks();  // whatever is still sent was given up
  auto copy = std::make_shared<Result<Buffer>>(Buffer());
  const bool whole = context_.config.checkpoint.optimizer;
  const SavedState saved = saved_here();
  const SavedPart part = part_of(saved, save.part(), std::max(save.parts(), 1U));
  jobs_.run(
      [this, copy, whole, first = part.first, bytes = part.bytes]() -> Result<void> {
        ParameterState& state = context_.state;
        if (whole) return *copy = state.save(first, bytes), Result<void>();
        const auto parameters = state.committed_parameters();
        *copy = parameters ? Result<Buffer>(Buffer::copy_of(parameters->subspan(first, bytes)))
                           : std::unexpected(parameters.error());
        return {};
      },
      guard_.wrap([this, copy, save] {
        if (!*copy) return say_failed(save, copy->error().what);
        look_for_folder(save, std::move(**copy));
      }));
}

SavedState StageSave::saved_here() const {
  return saved_state(context_.config, context_.model.layout(),
                     context_.config.checkpoint.optimizer);
}

// The stage serves on.
void StageSave::say_failed(const wire::SaveStage& save, const std::string& why) {
  SWARMLINE_MARK("stage_save.failed");
  log(LogLevel::kWarn, "a checkpoint of this stage can't be made: {}", why);
  wire::CheckpointPiece piece;
  *piece.mutable_seat() = to_wire(context_.self);
  piece.set_checkpoint(save.checkpoint());
  piece.set_stage(context_.self.stage.value);
  piece.set_part(save.part());
  piece.set_error(why);
  context_.call_coordinator(make_frame(MessageKind::kCheckpointPiece, piece),
                            [](const Result<Frame>&) {});
}

void StageSave::look_for_folder(const wire::SaveStage& save, Buffer state) {
  PartFolder* const folder = context_.part_folder;
  if (!save.has_folder() || folder == nullptr) return upload(save, std::move(state), {});
  const PartFolder::Place place{.folder = save.folder().path(),
                                .token = save.folder().token(),
                                .version = save.version(),
                                .attempt = save.attempt(),
                                .stage = context_.self.stage,
                                .part = save.part(),
                                .parts = std::max(save.parts(), 1U)};
  auto kept = std::make_shared<Buffer>(std::move(state));
  folder->run([folder, place] { return folder->prove(place); },
              guard_.wrap([this, save, place, kept](const Result<void>& seen) {
                upload(save, std::move(*kept), seen ? writer_of(place) : CheckpointUpload::Write());
              }));
}

CheckpointUpload::Write StageSave::writer_of(const PartFolder::Place& place) {
  SWARMLINE_MARK("stage_save.writes_itself");
  auto file = std::make_shared<std::unique_ptr<PartWriter>>();
  return [folder = context_.part_folder, place, file](BytesView bytes, bool last) -> Result<void> {
    if (!*file) {
      auto made = folder->create(place);
      if (!made) return std::unexpected(std::move(made).error());
      *file = std::move(*made);
    }
    SWARMLINE_TRY((*file)->append(bytes));
    return last ? (*file)->finish() : Result<void>();
  };
}

// Pieces that are sent are made between the jobs of the training, those that are written are not.
void StageSave::upload(const wire::SaveStage& save, Buffer state, CheckpointUpload::Write write) {
  CheckpointUpload::Work work = guard_.wrap([this](auto body, auto done) {
    jobs_.run(std::move(body), [done = std::move(done)] { done({}); });
  });
  if (write)
    work = guard_.wrap([this](auto body, auto done) {
      context_.part_folder->run(std::move(body), guard_.wrap(std::move(done)));
    });
  std::make_shared<CheckpointUpload>(
      context_.self,
      CheckpointUpload::Part{.checkpoint = save.checkpoint(),
                             .part = save.part(),
                             .parts = std::max(save.parts(), 1U)},
      saved_here(), std::move(state),
      CheckpointUpload::Doors{.work = std::move(work),
                              .call = context_.call_coordinator,
                              .later = guard_.wrap([this](Duration wait, auto then) {
                                context_.runtime.call_after(wait, guard_.wrap(std::move(then)));
                              }),
                              .write = std::move(write)},
      [](const Result<void>& done) {
        if (!done) log(LogLevel::kWarn, "the checkpoint was not saved: {}", done.error().what);
      })
      ->start();
}

}  // namespace swarmline
