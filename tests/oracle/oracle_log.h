// The losses of a run from the lines of its log.jsonl.
#pragma once

#include <string>
#include <vector>

#include "tests/oracle/oracle_bound.h"

namespace swarmline::oracle {

// Fills the losses and, from the last evaluation of the last version, eval_loss. A line that is no
// JSON, steps out of order and a loss that is not a number fail the test.
void read_log(const std::vector<std::string>& lines, Trace& trace);

}  // namespace swarmline::oracle
