// Two versions of a stage's parameters in host memory, of which one is in use: for models whose
// arenas are plain bytes.
//   Ownership: owns both; the second one is made when it is first asked for, as zeros.
//   Thread:    plain value.
#pragma once

#include <cstdint>
#include <utility>

#include "base/bytes.h"

namespace swarmline {

class TwoArenas {
 public:
  explicit TwoArenas(std::uint64_t bytes) : in_use_(Buffer::zeroed(bytes)) {}
  Buffer& in_use() { return in_use_; }
  const Buffer& in_use() const { return in_use_; }
  Buffer& other() {
    if (other_.size() == 0) other_ = Buffer::zeroed(in_use_.size());
    return other_;
  }
  void exchange() { std::swap(in_use_, other()); }

 private:
  Buffer in_use_;
  Buffer other_;
};

}  // namespace swarmline
