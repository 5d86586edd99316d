// One step's commit, as it is told to whoever holds the stage's state: what was averaged, and the
// numbers that every replica steps with.
//   Thread: plain values.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/optimizer/flat_optimizer.h"
#include "engine/store/journal.h"
#include "pipeline/coordinator/run/run_shape.h"
#include "pipeline/coordinator/steps/reduce_board.h"
#include "pipeline/protocol/messages.pb.h"

namespace swarmline {

struct CommitOrder {
  std::uint64_t step = 0;
  bool skipped = false;
  bool again = false;  // by another coordinator: the digests say which averaging is meant
  std::vector<GroupResult> results;
  StepScalars scalars;
  double loss = 0;

  // `keep`: some member of the stage has yet to fetch the reduced gradient. `ends_early_seat`: it
  // served with the parameters alone.
  wire::Commit message_to(const Seat& to, bool keep, bool ends_early_seat = false) const;
};

// As the journal has it, for those who did not hear of it.
CommitOrder commit_said_again(const RunShape& shape, const CommitRecord& record);

}  // namespace swarmline
