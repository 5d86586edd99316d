// A file that one process at a time holds; the system lets go of it when the process ends, however.
//   Thread: one. Errors: kIo.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"

namespace swarmline {

class RunLock {
 public:
  explicit RunLock(std::string path) : path_(std::move(path)) {}
  ~RunLock() { release(); }
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  // True: this process holds it, and `who` is written into it. False: another does.
  Result<bool> try_acquire(const std::string& who);
  // What the holder wrote; empty: nobody holds it.
  Result<std::optional<std::string>> holder();
  void release();
  bool held() const { return descriptor_ >= 0; }

 private:
  std::string path_;
  int descriptor_ = -1;
};

}  // namespace swarmline
