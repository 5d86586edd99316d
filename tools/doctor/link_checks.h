// Whether this machine and a run's coordinator get along: judged by a trial of their link.
//   Thread: any; pure. Errors: none.
#pragma once

#include <vector>

#include "tools/doctor/finding.h"
#include "tools/doctor/link_facts.h"

namespace swarmline {

// Beyond it the run's invites are taken for expired, or not yet good (node/admission/invites.h).
inline constexpr double kClockWarnSeconds = 5;
// Below it a microbatch of a small model takes longer to send than to compute.
inline constexpr double kSlowLinkBits = 20e6;

Finding judge_coordinator(const CoordinatorFacts& facts);  // it is reached
Finding judge_key(const CoordinatorFacts& facts);          // it is the run's, and takes the invite
Finding judge_version(const CoordinatorFacts& facts);
Finding judge_clock(const CoordinatorFacts& facts);
Finding judge_reach(const CoordinatorFacts& facts);  // it reaches this machine
Finding judge_speed(const CoordinatorFacts& facts);
std::vector<Finding> judge_link(const CoordinatorFacts& facts);  // all of these

}  // namespace swarmline
