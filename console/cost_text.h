// What a run has cost, for people. Pure.
#pragma once

#include <string>
#include <vector>

#include "pipeline/protocol/run_status.h"

namespace swarmline {

// "12.34 of 20.00 USD   1.92 an hour   3.21 a billion tokens": fits into 80 columns behind "cost ".
std::string cost_amounts(const RunStatus& status);
// cost_amounts() and, below it, what it was paid for, and what of it made no new step. Empty:
// nobody says a price.
std::vector<std::string> cost_lines(const RunStatus& status);

}  // namespace swarmline
