#include "node/part_folder.h"

#include <memory>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"
#include "engine/checkpoint/checkpoint_folder.h"
#include "engine/store/files.h"

namespace swarmline {

namespace {

class AtomicPart final : public PartWriter {
 public:
  explicit AtomicPart(AtomicFile file) : file_(std::move(file)) {}
  Result<void> append(BytesView bytes) override { return file_.append(bytes); }
  Result<void> finish() override { return file_.finish(); }

 private:
  AtomicFile file_;
};

}  // namespace

void SharedPartFolder::run(std::function<Result<void>()> body,
                           std::function<void(Result<void>)> done) {
  Job job;
  job.body = std::move(body);
  const auto submitted = device_.submit(
      std::move(job), [done = std::move(done)](const JobReport& report) { done(report.result); });
  if (!submitted) log(LogLevel::kWarn, "the disk does not keep up: {}", submitted.error().what);
}

Result<void> SharedPartFolder::prove(const Place& place) {
  const bool plain =
      place.folder.starts_with('/') && (place.folder + "/").find("/../") == std::string::npos;
  const auto said = plain && !place.token.empty()
                        ? read_text_file(place.folder + "/" + kSharedToken, kTokenBytesMax)
                        : fail(ErrorCode::kNotFound, "it has no full path");
  if (!said || *said != place.token)
    return fail(ErrorCode::kNotFound,
                fmt::format("{} is not the coordinator's folder here", place.folder));
  return {};
}

Result<std::unique_ptr<PartWriter>> SharedPartFolder::create(const Place& place) {
  auto file =
      AtomicFile::create(partial_checkpoint_path(place.folder, place.version, place.attempt) + "/" +
                         part_file_name(place.stage.value, place.part, place.parts));
  if (!file) return std::unexpected(std::move(file).error());
  return std::make_unique<AtomicPart>(std::move(*file));
}

}  // namespace swarmline
