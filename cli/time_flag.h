// A time that a flag of the command line gives: "90s", "30m", "24h", "7d".
//   Thread: any. Errors: kUserMistake with a sentence that names the flag. Bounds: the caller's.
#pragma once

#include <charconv>
#include <string>

#include <fmt/format.h>

#include "base/result.h"

namespace swarmline {

inline Result<double> seconds_of_flag(const char* flag, const std::string& text, double most) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  const double seconds = unit == "s"   ? 1
                         : unit == "m" ? 60
                         : unit == "h" ? 3600
                         : unit == "d" ? 86400
                                       : 0;
  if (error == std::errc() && seconds > 0 && number > 0 && number * seconds <= most)
    return number * seconds;
  return fail(ErrorCode::kUserMistake,
              fmt::format("{} {}: expected a time of at most {:.0f} days, e.g. 30m, 24h or 2d",
                          flag, text, most / 86400));
}

}  // namespace swarmline
