// A run's checkpoints in object storage (S3, GCS): STORE/RUN/step-N/manifest.json and its files.
//   What:      each request is a Python process of its own, whose pyarrow knows the services, their
//              credentials and their errors (checkpoint_store.py, built in).
//   Whole:     a checkpoint is there once its manifest is, which is written last and removed first.
//              What is fetched is believed when its SHA-256 is the manifest's.
//   Thread:    any, one call at a time. Blocking.
//   Errors:    kUserMistake: what trying again does not mend (no pyarrow, no such bucket, no
//              access), as a sentence; kIo: what may pass; kCorrupt, kNotFound, kIncompatible of a
//              checkpoint.
//   Bounds:    a request ends after kRequestSecondsMin, and a second for each kBytesPerSecondMin
//              that it moves; kAnswerBytesMax of an answer; kCheckpointsMax are listed.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "engine/checkpoint/checkpoint_folder.h"
#include "engine/checkpoint/manifest.h"

namespace swarmline {

// "s3://..." or "gs://...".
bool is_store_url(std::string_view text);

struct StoredCheckpoint {
  CheckpointEntry entry;  // path: its name, "step-100"
  Manifest manifest;      // empty where it is damaged
  std::uint64_t bytes = 0;
  double wall_seconds = 0;  // when its manifest was written, since 1970
  std::string damage;       // what is wrong with it, by the sizes of its files; empty: whole
  bool unfinished = false;  // there is no manifest: it is being copied, or was left so
};

class CheckpointStore {
 public:
  static constexpr double kRequestSecondsMin = 120;
  static constexpr double kBytesPerSecondMin = 100e3;
  static constexpr std::uint64_t kAnswerBytesMax = 256 * kMiB;
  static constexpr std::size_t kCheckpointsMax = 4096;

  struct Options {
    std::string url;  // of the run's checkpoints: s3://BUCKET/PATH[?OPTION=VALUE&...]
    std::string python = "python3";
    // Where it becomes true, a request under way ends as kStopped.
    std::shared_ptr<const std::atomic<bool>> stop = {};
  };
  explicit CheckpointStore(Options options) : options_(std::move(options)) {}
  // Those of the run of that name in a store.
  static Options of_run(const std::string& store, const std::string& run,
                        const std::string& python);

  std::string shown() const;  // the URL without its options, which may hold secrets
  // Oldest first, as list_checkpoints().
  Result<std::vector<StoredCheckpoint>> list() const;
  // A folder step-N; one of that name there is replaced.
  Result<void> push(const std::string& path) const;
  // Into CHECKPOINTS/step-N, whose path it returns, once every byte is what was written.
  Result<std::string> pull(const StoredCheckpoint& stored,
                           const std::string& checkpoints_folder) const;
  // Reads every byte there; empty: it is what was written.
  Result<std::string> find_damage(const StoredCheckpoint& stored) const;
  Result<void> remove(const StoredCheckpoint& stored) const;

 private:
  Result<std::string> request(std::string_view verb, std::vector<std::string> words,
                              std::uint64_t bytes = 0) const;
  Options options_;
};

}  // namespace swarmline
