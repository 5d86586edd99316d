#include "pipeline/coordinator/members/refusals.h"

#include <fmt/format.h>

#include "base/limits.h"
#include "base/log.h"
#include "base/printable.h"

namespace swarmline {

void Refusals::at_the_door(const wire::Hello& hello, const std::string& from,
                           const std::string& why) {
  const auto times = at_the_door_.happened(alarms_.now());
  if (times == 0) return;
  newest_ = fmt::format("a newcomer \"{}\" ({}) was refused: {}",
                        printable(hello.name(), Limits::name_bytes_max), from,
                        printable(why, Limits::reason_bytes_max));
  if (times > 1) newest_ += fmt::format(" ({} such)", times);
  events_.event("peer_refused", newest_, LogLevel::kWarn);
}

void Refusals::of_a_seat(const std::string& kind, const Member& member, const std::string& why) {
  newest_ = fmt::format("{}: {}", name_of(member), why);
  events_.event(kind, newest_, LogLevel::kWarn);
}

}  // namespace swarmline
