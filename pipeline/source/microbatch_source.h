// The data of a microbatch: a pure function of (phase, index), so that any stage-0 peer can start
// any microbatch again.
//   Shapes: tokens and targets (rows, sequence) int32, row-major; targets are the next tokens.
//   Errors: kUserMistake for data files that are not there or don't fit. Thread: one at a time.
#pragma once

#include <cstdint>
#include <span>

#include "base/ids.h"
#include "base/result.h"

namespace swarmline {

class MicrobatchSource {
 public:
  virtual ~MicrobatchSource() = default;
  virtual Result<void> read(const MicrobatchId& id, std::span<std::int32_t> tokens,
                            std::span<std::int32_t> targets) = 0;
};

}  // namespace swarmline
