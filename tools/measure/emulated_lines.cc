#include "tools/measure/emulated_lines.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <fmt/format.h>

namespace swarmline {
namespace {

// What may leave at once: two milliseconds, and a segment as the kernel hands it on.
constexpr double kBurstSeconds = 2e-3;
constexpr double kBurstBytesMin = 70e3;
constexpr int kQueueMs = 50;

Result<void> run(const std::string& command) {
  if (std::system(("PATH=$PATH:/usr/sbin:/sbin; " + command + " >/dev/null 2>&1").c_str()) == 0)
    return {};
  return fail(
      ErrorCode::kUserMistake,
      fmt::format("emulated lines: \"{}\" failed; they need root, and ip and tc of iproute2",
                  command));
}

std::string rate_of(double mbit_per_second) {
  const double burst = std::max(kBurstBytesMin, mbit_per_second * 1e6 / 8 * kBurstSeconds);
  return fmt::format("tbf rate {:.0f}kbit burst {:.0f} latency {}ms", mbit_per_second * 1e3, burst,
                     kQueueMs);
}

}  // namespace

EmulatedLines::EmulatedLines(std::size_t lines) {
  for (std::size_t i = 0; i <= lines; ++i)
    names_.push_back(fmt::format("swarmline-line-{}-{}", ::getpid(), i));
}

EmulatedLines::~EmulatedLines() {
  for (const std::string& name : names_) static_cast<void>(run("ip netns del " + name));
}

Result<std::unique_ptr<EmulatedLines>> EmulatedLines::make(
    const std::vector<double>& mbit_per_second) {
  std::unique_ptr<EmulatedLines> lines(new EmulatedLines(mbit_per_second.size()));
  SWARMLINE_TRY(lines->build(mbit_per_second));
  return lines;
}

Result<void> EmulatedLines::build(const std::vector<double>& mbit_per_second) {
  const std::string& hub = names_.back();
  for (const std::string& name : names_) SWARMLINE_TRY(run("ip netns add " + name));
  SWARMLINE_TRY(run(fmt::format("ip -n {} link add hub type bridge", hub)));
  SWARMLINE_TRY(run(fmt::format("ip -n {} link set hub up", hub)));
  for (std::size_t i = 0; i < count(); ++i) {
    const std::string& name = names_[i];
    const std::string port = fmt::format("port{}", i);
    SWARMLINE_TRY(run(
        fmt::format("ip -n {} link add {} type veth peer name line netns {}", hub, port, name)));
    SWARMLINE_TRY(run(fmt::format("ip -n {} addr add {}/24 dev line", name, address(i))));
    for (const auto& [at, device] : {std::pair(name, std::string("line")), std::pair(hub, port)})
      SWARMLINE_TRY(run(fmt::format("ip netns exec {} tc qdisc add dev {} root {}", at, device,
                                    rate_of(mbit_per_second[i]))));
    SWARMLINE_TRY(run(fmt::format("ip -n {} link set {} master hub up", hub, port)));
    SWARMLINE_TRY(run(fmt::format("ip -n {} link set line up", name)));
    SWARMLINE_TRY(run(fmt::format("ip -n {} link set lo up", name)));
  }
  return {};
}

std::string EmulatedLines::address(std::size_t line) const {
  return fmt::format("10.78.0.{}", line + 1);
}

Result<void> EmulatedLines::enter(std::size_t line) const {
  const std::string path = "/run/netns/" + names_[line];
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool entered = fd >= 0 && ::setns(fd, CLONE_NEWNET) == 0;
  const int error = errno;
  if (fd >= 0) ::close(fd);
  if (entered) return {};
  return fail(ErrorCode::kIo, fmt::format("{}: {}", path, std::strerror(error)));
}

}  // namespace swarmline
