// The data of a microbatch: a pure function of (phase, index), so that any stage-0 peer can start
// any microbatch again.
//   Shapes: tokens and targets (rows, sequence) int32, row-major; targets are the next tokens.
//   Errors: kUserMistake for data files that are not there or don't fit. Thread: one at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace swarmline {

class MicrobatchSource {
 public:
  virtual ~MicrobatchSource() = default;
  virtual Result<void> read(const MicrobatchId& id, std::span<std::int32_t> tokens,
                            std::span<std::int32_t> targets) = 0;
  // Of what is fetched: the pieces of the run's data (engine/data/data_pieces.h) that read() takes,
  // some perhaps twice; they must be here when it does. None: it has all of it.
  virtual std::vector<std::uint32_t> pieces_of(const MicrobatchId& /*id*/) const { return {}; }
};

}  // namespace swarmline
