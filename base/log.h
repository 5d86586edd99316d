// One line per event, for people: "Nov 21 09:30:01.123 [info] peer 3: message". Any thread; never
// throws.
#pragma once

#include <string>
#include <string_view>

#include <fmt/format.h>

#include "base/log_level.h"

namespace swarmline {

struct LogOptions {
  LogLevel level = LogLevel::kInfo;
  std::string file;    // empty: stderr; otherwise appended to, rotated at 10 MiB, three files kept
  std::string prefix;  // e.g. "peer 3"
};

void init_log(const LogOptions& options);
void log_line(LogLevel level, std::string_view message);
void flush_log();
bool log_enabled(LogLevel level);

template <typename... Args>
void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(level)) log_line(level, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace swarmline
