// Whole lines of a log.jsonl, from where the last ones ended.
//   What:   a log that has become another one, or shorter, is read from its beginning.
//   Thread: any, one at a time; blocking. Errors: kNotFound, kIo, with the path.
//   Bounds: kLogTailBytesMax of a log that is read for the first time: the newest.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace swarmline {

inline constexpr std::uint64_t kLogTailBytesMax = 256 << 20;

class LogTail {
 public:
  explicit LogTail(std::string path) : path_(std::move(path)) {}

  // False: nothing of what was read before counts any more. `stop`: set by another thread, it ends
  // early; null: it does not.
  Result<bool> read(const std::function<void(std::string_view line)>& take,
                    const std::atomic<bool>* stop = nullptr);

 private:
  std::string path_;
  std::uint64_t offset_ = 0;
};

}  // namespace swarmline
