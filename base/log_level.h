// How serious a line of the log is, and what it is called.
#pragma once

#include <optional>
#include <string_view>

namespace swarmline {

enum class LogLevel { kDebug, kInfo, kWarn, kError };

constexpr std::string_view to_string(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kWarn:
      return "warn";
    case LogLevel::kError:
      return "error";
    case LogLevel::kInfo:
      break;
  }
  return "info";
}

constexpr std::optional<LogLevel> parse_log_level(std::string_view name) {
  for (const LogLevel level :
       {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarn, LogLevel::kError})
    if (name == to_string(level)) return level;
  return std::nullopt;
}

}  // namespace swarmline
