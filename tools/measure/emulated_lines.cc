#include "tools/measure/emulated_lines.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <fmt/format.h>

#include "base/check.h"

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
      fmt::format("emulated lines: \"{}\" failed; they need root, ip and tc of iproute2, and "
                  "nsenter of util-linux",
                  command));
}

std::string rate_of(double mbit_per_second) {
  const double burst = std::max(kBurstBytesMin, mbit_per_second * 1e6 / 8 * kBurstSeconds);
  return fmt::format("tbf rate {:.0f}kbit burst {:.0f} latency {}ms", mbit_per_second * 1e3, burst,
                     kQueueMs);
}

Result<void> failed(const char* what) {
  return fail(ErrorCode::kUserMistake,
              fmt::format("emulated lines: {}: {}; they need root", what, std::strerror(errno)));
}

int open_own_space() {
  return ::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
}

}  // namespace

EmulatedLines::~EmulatedLines() {
  for (const int space : spaces_) ::close(space);
}

Result<std::unique_ptr<EmulatedLines>> EmulatedLines::make(
    const std::vector<double>& mbit_per_second) {
  std::unique_ptr<EmulatedLines> lines(new EmulatedLines);
  for (std::size_t i = 0; i <= mbit_per_second.size(); ++i) SWARMLINE_TRY(lines->add_space());
  SWARMLINE_TRY(lines->build(mbit_per_second));
  return lines;
}

// A namespace lasts as long as somebody is in it, or has it open.
Result<void> EmulatedLines::add_space() {
  const int own = open_own_space();
  if (own < 0) return failed("cannot look at this process's network");
  if (::unshare(CLONE_NEWNET) != 0) {
    ::close(own);
    return failed("cannot make a network namespace");
  }
  const int made = open_own_space();
  const int error = errno;
  if (made >= 0) spaces_.push_back(made);
  const bool is_back = ::setns(own, CLONE_NEWNET) == 0;
  SWARMLINE_CHECK_MSG(is_back, "a process that cannot return to its own network");
  ::close(own);
  errno = error;
  return made < 0 ? failed("cannot keep a network namespace") : Result<void>();
}

std::string EmulatedLines::path(std::size_t space) const {
  return fmt::format("/proc/{}/fd/{}", ::getpid(), spaces_[space]);
}

std::string EmulatedLines::in(std::size_t space) const {
  return fmt::format("nsenter --net={} ", path(space));
}

Result<void> EmulatedLines::build(const std::vector<double>& mbit_per_second) {
  const std::string at_hub = in(count());
  SWARMLINE_TRY(run(at_hub + "ip link add hub type bridge"));
  SWARMLINE_TRY(run(at_hub + "ip link set hub up"));
  for (std::size_t i = 0; i < count(); ++i) {
    const std::string at_line = in(i);
    const std::string port = fmt::format("port{}", i);
    SWARMLINE_TRY(run(
        fmt::format("{}ip link add {} type veth peer name line netns {}", at_hub, port, path(i))));
    SWARMLINE_TRY(run(fmt::format("{}ip addr add {}/24 dev line", at_line, address(i))));
    for (const auto& [at, device] :
         {std::pair(at_line, std::string("line")), std::pair(at_hub, port)})
      SWARMLINE_TRY(run(
          fmt::format("{}tc qdisc add dev {} root {}", at, device, rate_of(mbit_per_second[i]))));
    SWARMLINE_TRY(run(fmt::format("{}ip link set {} master hub up", at_hub, port)));
    SWARMLINE_TRY(run(at_line + "ip link set line up"));
    SWARMLINE_TRY(run(at_line + "ip link set lo up"));
  }
  return {};
}

std::string EmulatedLines::address(std::size_t line) const {
  return fmt::format("10.78.0.{}", line + 1);
}

Result<void> EmulatedLines::enter(std::size_t line) const {
  if (::setns(spaces_[line], CLONE_NEWNET) == 0) return {};
  return fail(ErrorCode::kIo, fmt::format("a line's network namespace: {}", std::strerror(errno)));
}

}  // namespace swarmline
