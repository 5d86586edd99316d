#include "node/object_store/checkpoint_mirror.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "engine/store/files.h"

namespace swarmline {
namespace {

namespace fs = std::filesystem;

CheckpointStore::Options with_stop(CheckpointStore::Options options,
                                   std::shared_ptr<const std::atomic<bool>> stop) {
  options.stop = std::move(stop);
  return options;
}

// Second names of its files, in OUTBOX/step-N, whose path it returns.
Result<std::string> hold(const std::string& checkpoint, const std::string& outbox) {
  const fs::path from(checkpoint), to = fs::path(outbox) / from.filename();
  if (is_folder(to.string())) return to.string();
  const std::string partial = outbox + "/partial";
  SWARMLINE_TRY(remove_folder(partial));
  SWARMLINE_TRY(make_folders(partial));
  std::error_code error;
  for (const auto& file : fs::directory_iterator(from, error)) {
    fs::create_hard_link(file.path(), fs::path(partial) / file.path().filename(), error);
    if (error) break;
  }
  if (!is_folder(checkpoint)) return fail(ErrorCode::kNotFound, "the run keeps it no more");
  // A file system without second names: it is copied if the run keeps it for long enough.
  if (error) return checkpoint;
  SWARMLINE_TRY(replace_folder(partial, to.string()));
  return to.string();
}

}  // namespace

CheckpointMirror::CheckpointMirror(AsioRuntime& runtime, CheckpointStore::Options store,
                                   std::string outbox, Retain retain)
    : runtime_(runtime),
      stop_(std::make_shared<std::atomic<bool>>(false)),
      store_(with_stop(std::move(store), stop_)),
      outbox_(std::move(outbox)),
      retain_(std::move(retain)),
      device_(runtime, {.name = "object storage"}) {}

CheckpointMirror::~CheckpointMirror() {
  *stop_ = true;
}

void CheckpointMirror::copy(const std::string& path) {
  waiting_ = path;
  if (copying_.empty()) begin();
}

void CheckpointMirror::begin() {
  // What the outbox holds is an older one, of the same step perhaps.
  const bool is_new = waiting_.has_value();
  if (is_new) {
    copying_ = *std::exchange(waiting_, std::nullopt);
    tries_ = 0;
  }
  if (copying_.empty()) {
    if (done_) runtime_.post(std::exchange(done_, {}));
    return;
  }
  Job job;
  job.body = [this, path = copying_, is_new]() -> Result<void> {
    if (is_new) SWARMLINE_TRY(remove_folder(outbox_));
    const auto held = hold(path, outbox_);
    if (!held) return std::unexpected(held.error());
    SWARMLINE_TRY(store_.push(*held));
    SWARMLINE_TRY(remove_folder(outbox_));
    const auto pruned = prune_store(store_, retain_(), false, Unfinished::kGo);
    if (!pruned) return std::unexpected(pruned.error());
    return {};
  };
  const auto submitted = device_.submit(
      std::move(job), guard_.wrap([this](const JobReport& report) { ended(report.result); }));
  SWARMLINE_CHECK(submitted.has_value());  // one at a time
}

void CheckpointMirror::ended(const Result<void>& copied) {
  const auto next = [this] {
    copying_.clear();
    pause_ = {};
    begin();
  };
  if (copied) {
    log(LogLevel::kInfo, "{} is copied to {}", copying_, store_.shown());
    return next();
  }
  if (copied.error().code == ErrorCode::kNotFound) {
    log(LogLevel::kInfo, "{} is not copied to object storage: {}", copying_, copied.error().what);
    return next();
  }
  const bool gives_up = copied.error().code == ErrorCode::kUserMistake || *stop_ ||
                        (done_ && ++tries_ >= kLastTriesMax);
  if (pause_ == Duration{} || gives_up)
    log(LogLevel::kWarn, "{} is not copied to object storage{}: {}", copying_,
        gives_up ? "" : " and tried again", copied.error().what);
  if (gives_up) return next();
  pause_ = std::clamp(pause_ * 2, kPauseMin, kPauseMax);
  runtime_.call_after(done_ ? kPauseMin : pause_, guard_.wrap([this] { begin(); }));
}

void CheckpointMirror::finish(std::function<void()> done) {
  done_ = std::move(done);
  if (copying_.empty()) begin();
}

Result<std::vector<std::string>> prune_store(const CheckpointStore& store,
                                             const Retention& retention, bool only_look,
                                             Unfinished unfinished) {
  auto stored = store.list();
  if (!stored) return std::unexpected(std::move(stored).error());
  std::vector<std::string> removed;
  for (const StoredCheckpoint& one : *stored) {
    if (!one.unfinished || unfinished == Unfinished::kStay) continue;
    removed.push_back(one.entry.path);
    if (!only_look) SWARMLINE_TRY(store.remove(one));
  }
  std::ranges::reverse(*stored);
  std::erase_if(*stored, [](const StoredCheckpoint& one) { return !one.damage.empty(); });
  std::vector<CheckpointEntry> newest_first;
  for (const StoredCheckpoint& one : *stored) newest_first.push_back(one.entry);
  const std::vector<bool> stays = kept_by(retention, newest_first);
  for (std::size_t i = 0; i < stored->size(); ++i) {
    if (stays[i]) continue;
    removed.push_back((*stored)[i].entry.path);
    if (!only_look) SWARMLINE_TRY(store.remove((*stored)[i]));
  }
  return removed;
}

}  // namespace swarmline
