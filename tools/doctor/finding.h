// What one check of `swarmline doctor` found, and the report of all of them. Pure.
//   Thread: any. Errors: none. The JSON: docs/formats/doctor.md.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace swarmline {

enum class CheckOutcome : std::uint8_t { kOk, kWarn, kFail, kSkipped };
std::string_view to_string(CheckOutcome verdict);  // ok warn fail skipped

struct Finding {
  std::string check;  // "port", "clock", ...
  CheckOutcome verdict = CheckOutcome::kOk;
  std::string what;    // was found, and of what is skipped: why
  std::string advice;  // what to do; empty: nothing
};

bool any_failed(std::span<const Finding> findings);
// A line each, and one that sums up.
std::string findings_text(std::span<const Finding> findings);
std::string findings_json(std::span<const Finding> findings);

}  // namespace swarmline
