#include "base/log.h"

#include <memory>
#include <vector>

#include <spdlog/sinks/rotating_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include "base/printable.h"
#include "base/units.h"

namespace swarmline {
namespace {

constexpr std::size_t kLogFileBytesMax = 10 * kMiB;
constexpr std::size_t kLogFilesMax = 3;

std::shared_ptr<spdlog::logger>& logger() {
  static std::shared_ptr<spdlog::logger> instance = [] {
    auto made = std::make_shared<spdlog::logger>(
        "swarmline", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    made->set_pattern("%b %d %H:%M:%S.%e [%^%l%$] %v");
    return made;
  }();
  return instance;
}

spdlog::level::level_enum level_of(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarn:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

}  // namespace

void init_log(const LogOptions& options) {
  std::vector<spdlog::sink_ptr> sinks;
  if (options.file.empty()) {
    sinks.push_back(std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  } else {
    sinks.push_back(std::make_shared<spdlog::sinks::rotating_file_sink_mt>(
        options.file, kLogFileBytesMax, kLogFilesMax));
  }
  auto made = std::make_shared<spdlog::logger>("swarmline", sinks.begin(), sinks.end());
  made->set_pattern(options.prefix.empty()
                        ? "%b %d %H:%M:%S.%e [%^%l%$] %v"
                        : "%b %d %H:%M:%S.%e [%^%l%$] " + options.prefix + ": %v");
  made->set_level(level_of(options.level));
  made->flush_on(spdlog::level::info);
  logger() = made;
}

void log_line(LogLevel level, std::string_view message) {
  logger()->log(level_of(level), "{}", printable_lines(message));
}

void flush_log() {
  logger()->flush();
}

bool log_enabled(LogLevel level) {
  return logger()->should_log(level_of(level));
}

}  // namespace swarmline
