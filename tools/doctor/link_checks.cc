#include "tools/doctor/link_checks.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include <fmt/format.h>

#include "console/text.h"
#include "node/admission/invites.h"
#include "pipeline/protocol/message_kinds.h"
#include "pipeline/protocol/protocol_version.h"

namespace swarmline {
namespace {

// It answered, and did not like what it was shown, or showed another key.
bool answered_by_keys(const CoordinatorFacts& facts) {
  return facts.no_link &&
         (facts.no_link->code == ErrorCode::kRefused || facts.no_link->code == ErrorCode::kCorrupt);
}

std::optional<Finding> skipped_without_answer(const char* check, const CoordinatorFacts& facts) {
  if (facts.no_link)
    return Finding{check, CheckOutcome::kSkipped, "there is no link to ask over", ""};
  if (facts.no_answer && facts.protocol == 0)
    return Finding{check, CheckOutcome::kSkipped,
                   fmt::format("the coordinator does not say: {}", facts.no_answer->what), ""};
  return std::nullopt;
}

std::string speed_text(const WaySpeed& way) {
  return fmt::format("{:.0f} Mbit/s ({} in {:.2f} s)", way.bits_per_second() / 1e6,
                     human_bytes(static_cast<double>(way.bytes)), way.seconds);
}

}  // namespace

Finding judge_coordinator(const CoordinatorFacts& facts) {
  if (facts.no_link && !answered_by_keys(facts))
    return {"coordinator", CheckOutcome::kFail,
            fmt::format("{} is not reached: {}", facts.address, facts.no_link->what),
            "see that it runs, that the address is one that this machine can reach, and that no "
            "firewall is between"};
  return {"coordinator", CheckOutcome::kOk,
          facts.no_link ? fmt::format("{} answers", facts.address)
                        : fmt::format("{} is reached; a round trip takes {:.1f} ms", facts.address,
                                      facts.round_trip_seconds * 1000),
          ""};
}

Finding judge_key(const CoordinatorFacts& facts) {
  if (answered_by_keys(facts)) {
    const bool other_key = facts.no_link->code == ErrorCode::kCorrupt;
    return {"key", CheckOutcome::kFail, facts.no_link->what,
            other_key ? "ask the run's owner for the string that its coordinator prints now, and "
                        "by a way that you trust"
                      : "ask the run's owner for another invite (swarmline invite)"};
  }
  if (facts.no_link) return {"key", CheckOutcome::kSkipped, "there is no link to ask over", ""};
  if (facts.no_answer && facts.no_answer->code == ErrorCode::kUserMistake)
    return {"key", CheckOutcome::kFail, facts.no_answer->what, ""};
  if (!facts.has_keys)
    return {"key", CheckOutcome::kSkipped, "the link is plain: nobody proves who they are", ""};
  return {"key", CheckOutcome::kOk, "the coordinator's key is the run's, and it takes the invite",
          ""};
}

Finding judge_version(const CoordinatorFacts& facts) {
  if (facts.no_link) return {"version", CheckOutcome::kSkipped, "there is no link to ask over", ""};
  if (facts.protocol == 0)
    return {"version", CheckOutcome::kWarn,
            fmt::format("the coordinator does not say: {}",
                        facts.no_answer ? facts.no_answer->what : "no answer"),
            "use the same version of swarmline at both ends"};
  if (facts.protocol != kProtocolVersion) {
    const bool older = facts.protocol < kProtocolVersion;
    return {"version", CheckOutcome::kFail,
            fmt::format("the coordinator speaks protocol {}, this program {}: {} is older",
                        facts.protocol, kProtocolVersion,
                        older ? "the coordinator's swarmline" : "this swarmline"),
            fmt::format("install the coordinator's version of swarmline here{}",
                        older ? ", or start the coordinator again with this one" : "")};
  }
  return {"version", CheckOutcome::kOk, fmt::format("both speak protocol {}", kProtocolVersion),
          ""};
}

Finding judge_clock(const CoordinatorFacts& facts) {
  if (auto skipped = skipped_without_answer("clock", facts)) return *skipped;
  const double off = std::abs(facts.ahead_seconds);
  const std::string what = fmt::format(
      "this machine's clock is {:.1f} s {} the coordinator's (give or take {:.0f} ms)", off,
      facts.ahead_seconds > 0 ? "behind" : "ahead of", std::ceil(facts.round_trip_seconds * 500));
  constexpr const char* kAdvice = "set it, e.g. with chrony or systemd-timesyncd";
  if (off > kClockSkewSeconds)
    return {"clock", CheckOutcome::kFail,
            fmt::format("{}, more than the {:.0f} s that invites and certificates bear", what,
                        kClockSkewSeconds),
            kAdvice};
  if (off > kClockWarnSeconds) return {"clock", CheckOutcome::kWarn, what, kAdvice};
  return {"clock", CheckOutcome::kOk, what, ""};
}

Finding judge_reach(const CoordinatorFacts& facts) {
  if (auto skipped = skipped_without_answer("reach", facts)) return *skipped;
  if (facts.reach == "yes")
    return {"reach", CheckOutcome::kOk,
            fmt::format("the coordinator reaches this machine at {}", facts.listens_at), ""};
  if (facts.reach == "no")
    return {"reach", CheckOutcome::kWarn,
            fmt::format("the coordinator does not reach this machine at {} ({})", facts.listens_at,
                        facts.not_reached),
            "peers dial out, so this works with peers that can be reached; else open that port, or "
            "run a relay (docs/reaching.md)"};
  if (facts.reach == "elsewhere")
    return {"reach", CheckOutcome::kSkipped,
            fmt::format("{} is another host's address than {}, where this link comes from: nobody "
                        "dials there",
                        facts.listens_at, facts.seen_from),
            "see that peers reach it"};
  return {"reach", CheckOutcome::kSkipped, "the coordinator did not say", ""};
}

Finding judge_speed(const CoordinatorFacts& facts) {
  if (auto skipped = skipped_without_answer("link speed", facts)) return *skipped;
  if (facts.up.bytes == 0 || facts.down.bytes == 0)
    return {"link speed", CheckOutcome::kSkipped, "the coordinator did not say", ""};
  const std::string what = fmt::format("to the coordinator {}, from it {}", speed_text(facts.up),
                                       speed_text(facts.down));
  if (std::min(facts.up.bits_per_second(), facts.down.bits_per_second()) < kSlowLinkBits)
    return {"link speed", CheckOutcome::kWarn, what,
            "choose a wider model cut into fewer stages, or codecs of fewer bits "
            "(docs/square_cube.md)"};
  return {"link speed", CheckOutcome::kOk, what, ""};
}

std::vector<Finding> judge_link(const CoordinatorFacts& facts) {
  return {judge_coordinator(facts), judge_key(facts),   judge_version(facts),
          judge_clock(facts),       judge_reach(facts), judge_speed(facts)};
}

}  // namespace swarmline
