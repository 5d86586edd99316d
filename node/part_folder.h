// A peer's parts of checkpoints, written by itself into the run's folder, where that is on a file
// system which it shares with the coordinator.
//   What:      believes in a folder only when a file of that one name in it says the token that
//              its coordinator says, which only who can write there can have put there. Makes no
//              folder, and no name that is not of numbers.
//   Thread:    as pipeline/stage/part_folder.h; bodies on a thread of its own.
//   Errors:    kNotFound: not that folder. kIo.
//   Bounds:    kTokenBytesMax are read; kJobsMax wait.
#pragma once

#include <string>

#include "engine/device/cpu_device.h"
#include "pipeline/stage/part_folder.h"

namespace swarmline {

inline constexpr const char* kSharedToken = ".writers";  // the file's name
inline constexpr std::uint64_t kTokenBytesMax = 256;

class SharedPartFolder final : public PartFolder {
 public:
  static constexpr int kJobsMax = 16;
  explicit SharedPartFolder(Runtime& runtime)
      : device_(runtime, {.name = "checkpoint parts", .queue_jobs_max = kJobsMax}) {}

  void run(std::function<Result<void>()> body, std::function<void(Result<void>)> done) override;
  Result<void> prove(const Place& place) override;
  Result<std::unique_ptr<PartWriter>> create(const Place& place) override;

 private:
  CpuDevice device_;
};

}  // namespace swarmline
