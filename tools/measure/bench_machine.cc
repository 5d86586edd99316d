#include "tools/measure/bench_machine.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <unistd.h>

#include <fmt/format.h>

#include "base/units.h"
#include "console/screen.h"
#include "console/text.h"

namespace swarmline {
namespace {

constexpr std::size_t kBarColumns = 20;

// What follows `name` and a colon in a file of the system; empty if nothing does.
std::string system_value(const char* path, std::string_view name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(name)) continue;
    const std::size_t begin = line.find_first_not_of(": \t", name.size());
    if (begin != std::string::npos) return line.substr(begin);
  }
  return {};
}

}  // namespace

std::string processor_name() {
  const std::string name = system_value("/proc/cpuinfo", "model name");
  return name.empty() ? "unknown" : name;
}

int processor_cores() {
  return std::max(1, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
}

std::uint64_t free_memory_bytes() {
  return std::strtoull(system_value("/proc/meminfo", "MemAvailable").c_str(), nullptr, 10) * kKiB;
}

SecondsClock seconds_clock(const Runtime& runtime) {
  return [&runtime] { return to_seconds(runtime.now().time_since_epoch()); };
}

BenchProgress::BenchProgress(std::size_t cases)
    : cases_(cases), visible_(output_is_terminal()), utf8_(terminal_style().utf8) {}

void BenchProgress::begin(const std::string& what) {
  const double done = static_cast<double>(number_++) / static_cast<double>(cases_);
  if (!visible_) return;
  std::printf("\r\x1b[K%s",
              fmt::format("  {} {} of {}: {} ...", progress_bar(done, kBarColumns, utf8_), number_,
                          cases_, what)
                  .c_str());
  std::fflush(stdout);
}

void BenchProgress::end(const std::string& line) const {
  clear();
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

void BenchProgress::clear() const {
  if (visible_) std::printf("\r\x1b[K");
}

}  // namespace swarmline
