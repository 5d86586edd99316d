#include "tools/doctor/run_checks.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace swarmline {
namespace {

constexpr std::size_t kNamedMax = 8;    // in one line
constexpr double kRecentSeconds = 300;  // a pair out of reach is said once a minute

bool serves(const PeerStatus& peer) {
  return peer.state == "ready";
}

std::size_t serving(const StageStatus& stage) {
  return static_cast<std::size_t>(std::ranges::count_if(stage.peers, serves));
}

bool has_ready_shadow(const StageStatus& stage) {
  return std::ranges::any_of(stage.shadows,
                             [](const ShadowStatus& shadow) { return shadow.state == "ready"; });
}

std::string named(std::vector<std::string> names) {
  const std::size_t all = names.size();
  if (all > kNamedMax) names.resize(kNamedMax);
  return fmt::format("{}{}", fmt::join(names, ", "),
                     all > kNamedMax ? fmt::format(" and {} more", all - kNamedMax) : "");
}

// Of peers whose speed is known; 0: of none.
double median_speed(const StageStatus& stage) {
  std::vector<double> speeds;
  for (const PeerStatus& peer : stage.peers)
    if (serves(peer) && peer.speed > 0) speeds.push_back(peer.speed);
  if (speeds.empty()) return 0;
  const auto middle = speeds.begin() + static_cast<std::ptrdiff_t>(speeds.size() / 2);
  std::ranges::nth_element(speeds, middle);
  return *middle;
}

bool is_training(const RunStatus& status) {
  return status.state == "training" || status.state == "evaluating" ||
         status.state == "checkpointing";
}

}  // namespace

Finding judge_state(const RunStatus& status) {
  const std::string at =
      fmt::format("{} is {} at step {} of {}", status.run, status.state, status.step, status.steps);
  const std::string why = status.sentence.empty() ? "" : ": " + status.sentence;
  if (status.state == "failed" || status.state == "died")
    return {"run", CheckOutcome::kFail, at + why, "the same command resumes it"};
  if (status.state == "waiting")
    return {"run", CheckOutcome::kWarn,
            fmt::format("{} waits for peers: {} of {} are here", status.run, status.peers(),
                        status.wanted()),
            "let others join"};
  if (status.state == "collecting") return {"run", CheckOutcome::kWarn, at + why, ""};
  return {"run", CheckOutcome::kOk, at + why, ""};
}

Finding judge_journal(const RunStatus& status) {
  if (status.journal.empty()) return {"journal", CheckOutcome::kOk, "it can be written", ""};
  return {"journal", CheckOutcome::kFail, status.journal,
          "until it can be written the run pauses: make room in the run folder, or see to etcd"};
}

Finding judge_stages(const RunStatus& status) {
  std::vector<std::string> none, one;
  for (const StageStatus& stage : status.stages) {
    const std::size_t peers = serving(stage);
    if (peers == 0) none.push_back(std::to_string(stage.stage));
    if (peers == 1) one.push_back(std::to_string(stage.stage));
  }
  if (!none.empty() && is_training(status))
    return {"stages", CheckOutcome::kFail, fmt::format("nobody serves stage {}", named(none)),
            "let peers join; the run waits for those that it lost, or goes back"};
  if (!none.empty())
    return {"stages", CheckOutcome::kWarn, fmt::format("nobody serves stage {} yet", named(none)),
            "let peers join"};
  if (!one.empty())
    return {"stages", CheckOutcome::kWarn, fmt::format("stage {} has one peer", named(one)),
            "let another peer join, so that the run outlives the loss of one"};
  return {"stages", CheckOutcome::kOk,
          fmt::format("{} stages, each with at least two peers", status.stages.size()), ""};
}

Finding judge_protection(const RunStatus& status) {
  std::vector<std::string> bare;
  for (const StageStatus& stage : status.stages)
    if (serving(stage) <= 1 && !has_ready_shadow(stage))
      bare.push_back(std::to_string(stage.stage));
  const std::string newest = status.checkpoint.empty()
                                 ? "there is no checkpoint yet"
                                 : fmt::format("the newest checkpoint is {}", status.checkpoint);
  if (bare.empty())
    return {"protection", CheckOutcome::kOk,
            fmt::format("every stage has a second peer or a shadow; {}", newest), ""};
  const std::string what =
      fmt::format("if the peer of stage {} is lost, the run goes back to a checkpoint; {}",
                  named(bare), newest);
  return {"protection", CheckOutcome::kWarn, what,
          status.checkpoint.empty()
              ? "let another peer join, set balance.shadows = \"auto\", or checkpoint.every_minutes"
              : "let another peer join, or set balance.shadows = \"auto\""};
}

Finding judge_links(const RunStatus& status) {
  std::vector<std::string> closed;
  for (const StageStatus& stage : status.stages)
    for (const PeerStatus& peer : stage.peers)
      if (peer.reach == "no" && peer.state != "lost") closed.push_back(peer.name);
  const auto apart =
      std::find_if(status.events.rbegin(), status.events.rend(), [&](const EventStatus& event) {
        return event.kind == "out_of_reach" &&
               status.wall_seconds - event.wall_seconds <= kRecentSeconds;
      });
  if (apart != status.events.rend())
    return {"links", CheckOutcome::kWarn, apart->detail, "docs/reaching.md"};
  if (closed.size() > 1 && status.relays.empty())
    return {"links", CheckOutcome::kWarn,
            fmt::format("{} peers take no connections ({}): two of them can't exchange anything",
                        closed.size(), named(closed)),
            "open a port of one of each two, or run a relay (swarmline relay)"};
  if (!closed.empty())
    return {"links", CheckOutcome::kOk,
            fmt::format("{} take no connections, and dial out{}", named(closed),
                        status.relays.empty() ? "" : " or use a relay"),
            ""};
  return {"links", CheckOutcome::kOk, "no two peers are known to be out of each other's reach", ""};
}

Finding judge_peers(const RunStatus& status) {
  std::vector<std::string> slow;
  for (const StageStatus& stage : status.stages) {
    const double median = median_speed(stage);
    for (const PeerStatus& peer : stage.peers)
      if (serves(peer) && peer.speed > 0 && peer.speed < kSlowPeerShare * median)
        slow.push_back(fmt::format("{} of stage {} ({:.0f} %)", peer.name, stage.stage,
                                   100 * peer.speed / median));
  }
  if (slow.empty())
    return {"speeds", CheckOutcome::kOk,
            fmt::format("no peer is below {:.0f} % of the median speed of its stage",
                        100 * kSlowPeerShare),
            ""};
  return {"speeds", CheckOutcome::kWarn,
          fmt::format("far slower than the other peers of their stage: {}", named(slow)),
          "see what else runs on those machines, and whether they are throttled"};
}

Finding judge_arrivals(const RunStatus& status) {
  if (status.refused.empty()) return {"arrivals", CheckOutcome::kOk, "nobody was refused", ""};
  return {"arrivals", CheckOutcome::kWarn, status.refused, "run \"swarmline doctor --join\" there"};
}

std::vector<Finding> judge_run(const RunStatus& status) {
  if (status.over()) return {judge_state(status)};
  return {judge_state(status),      judge_journal(status), judge_stages(status),
          judge_protection(status), judge_links(status),   judge_peers(status),
          judge_arrivals(status)};
}

}  // namespace swarmline
