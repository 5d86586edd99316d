#include "tools/predict/plan_of_status.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "engine/store/json_value.h"

namespace swarmline {
namespace {

std::unexpected<Error> no_status(const std::string& where, const std::string& expected) {
  return fail(ErrorCode::kUserMistake,
              fmt::format("{} of the status: expected {}", where, expected));
}

Result<StageId> stage_of(double number, std::size_t stages, const std::string& where) {
  if (!(number >= 0) || number >= static_cast<double>(stages) || number != std::floor(number))
    return no_status(where, fmt::format("a stage from 0 to {}", stages - 1));
  return StageId(static_cast<std::uint16_t>(number));
}

Result<void> check_run(const RunStatus& status) {
  if (status.over())
    return fail(ErrorCode::kUserMistake,
                fmt::format("the run {} is over ({}): it has no peers to plan for", status.run,
                            status.state));
  if (status.stages.empty() || status.stages.size() > kPlanStagesMax)
    return no_status("stages", fmt::format("1 to {} stages", kPlanStagesMax));
  if (status.peers() > kPlanPeersMax)
    return no_status("stages", fmt::format("at most {} peers", kPlanPeersMax));
  return {};
}

Result<void> add_stage(const StageStatus& stage, PlanSnapshot& snapshot) {
  const std::string where = fmt::format("stages[{}]", snapshot.stages.size());
  if (stage.stage != snapshot.stages.size())
    return no_status(where + ".stage", fmt::format("{}", snapshot.stages.size()));
  if (!(stage.cost > 0) || !std::isfinite(stage.cost))
    return no_status(where + ".cost",
                     "what a microbatch costs there, as this version of the program writes it");
  snapshot.stages.push_back({.cost = stage.cost, .state_bytes = stage.state_bytes});
  return {};
}

// Nothing, of one that the balancer does not count.
Result<void> add_peer(const StageStatus& stage, const PeerStatus& peer, PlanQuestion& question) {
  PlanSnapshot& snapshot = question.snapshot;
  const std::string who = fmt::format("peer {}", peer.peer);
  if (peer.peer == 0 || peer.peer > UINT32_MAX) return no_status(who, "a number from 1 on");
  const PeerId id(static_cast<std::uint32_t>(peer.peer));
  if (!question.names.emplace(id, peer.name).second)
    return no_status(who, "a number that no other peer has");
  if (peer.speed == 0) return {};
  if (!(peer.speed > 0) || !std::isfinite(peer.speed))
    return no_status(who + "'s speed", "a number of at least 0");
  const std::size_t stages = snapshot.stages.size();
  const double place_number = peer.moves_to.value_or(static_cast<double>(stage.stage));
  const auto place = stage_of(place_number, stages, who + "'s moves_to");
  if (!place) return std::unexpected(place.error());
  PlanPeer facts{.peer = id,
                 .stage = *place,
                 .arriving = peer.arriving,
                 .speed = peer.speed,
                 .memory_bytes = peer.memory_bytes,
                 .shadow_memory_bytes = peer.shadow_memory_bytes,
                 .shadows = {},
                 .slow_seconds = peer.slow_seconds,
                 .at = {.zone = peer.zone, .host = peer.host}};
  if (peer.barred) {
    const auto barred = stage_of(*peer.barred, stages, who + "'s barred");
    if (!barred) return std::unexpected(barred.error());
    facts.barred = *barred;
  }
  snapshot.peers.push_back(std::move(facts));
  return {};
}

void add_shadows(const RunStatus& status, PlanSnapshot& snapshot) {
  std::map<std::uint64_t, PlanPeer*> hosts;
  for (PlanPeer& peer : snapshot.peers) hosts[peer.peer.value] = &peer;
  for (const StageStatus& stage : status.stages) {
    for (const ShadowStatus& shadow : stage.shadows) {
      const auto host = hosts.find(shadow.peer);
      if (host == hosts.end()) continue;  // it drains, or is lost
      host->second->shadows.push_back({.stage = StageId(static_cast<std::uint16_t>(stage.stage)),
                                       .ready = shadow.state == "ready"});
    }
  }
}

std::optional<std::uint32_t> shadows_wanted(const RunStatus& status) {
  if (!status.balance_shadows || !(*status.balance_shadows >= 0)) return std::nullopt;
  const double most = std::min<double>(*status.balance_shadows, kPlanPeersMax);
  return static_cast<std::uint32_t>(most);
}

}  // namespace

Result<PlanQuestion> plan_question_of(const RunStatus& status) {
  SWARMLINE_TRY(check_run(status));
  PlanQuestion question;
  question.moves = status.balance_moves;
  question.options = run_plan_options(status.balance_moves, shadows_wanted(status));
  for (const StageStatus& stage : status.stages) SWARMLINE_TRY(add_stage(stage, question.snapshot));
  for (const StageStatus& stage : status.stages)
    for (const PeerStatus& peer : stage.peers) SWARMLINE_TRY(add_peer(stage, peer, question));
  // As the coordinator has them: ties go to the lower number.
  std::ranges::sort(question.snapshot.peers, {}, &PlanPeer::peer);
  add_shadows(status, question.snapshot);
  return question;
}

Result<PlanQuestion> parse_status_or_snapshot(std::string_view text) {
  const auto json = parse_json(text);
  if (!json) return fail(ErrorCode::kUserMistake, json.error().what);
  if ((*json)["run"].kind != JsonValue::Kind::kString) return parse_plan_question(text);
  const auto status = parse_status(text);
  if (!status) return std::unexpected(status.error());
  return plan_question_of(*status);
}

}  // namespace swarmline
