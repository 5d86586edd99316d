#include "pipeline/stage/state/stage_save.h"

#include <memory>
#include <utility>

#include "base/log.h"
#include "pipeline/stage/state/checkpoint_upload.h"

namespace swarmline {

Result<void> StageSave::begin(std::uint64_t version, Version committed,
                              const std::string& checkpoint) {
  if (version != committed.value)
    return fail(ErrorCode::kIncompatible,
                fmt::format("asked to save version {}, has {}", version, committed.value));
  auto copy = std::make_shared<Buffer>();
  const bool whole = context_.config.checkpoint.optimizer;
  jobs_.run(
      [this, copy, whole]() -> Result<void> {
        auto made =
            whole ? context_.state.save() : Buffer::copy_of(context_.state.committed_parameters());
        if (!made) return std::unexpected(std::move(made).error());
        *copy = std::move(*made);
        return {};
      },
      [this, copy, whole, checkpoint] { upload(checkpoint, whole, std::move(*copy)); });
  return {};
}

void StageSave::upload(const std::string& checkpoint, bool whole, Buffer state) {
  const SavedState saved = saved_state(context_.config, context_.model.layout(), whole);
  std::make_shared<CheckpointUpload>(
      context_.self, checkpoint, saved, std::move(state),
      guard_.wrap([this](auto body, auto done) { jobs_.run(std::move(body), std::move(done)); }),
      context_.call_coordinator,
      [](const Result<void>& done) {
        if (!done) log(LogLevel::kError, "the checkpoint could not be sent: {}", done.error().what);
      })
      ->start();
}

}  // namespace swarmline
