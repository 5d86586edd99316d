#include "sim/oracles/swarm_oracles.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "sim/faults/fault.h"

namespace swarmline {
namespace {

constexpr Duration kOnItsWay = std::chrono::seconds(30);
constexpr std::uint64_t kWritesAtOnce = 64;  // beyond those that are accounted for

struct RuleName {
  OracleRule rule;
  std::string_view name;
};
constexpr std::array kRules = {
    RuleName{OracleRule::kEra, "era"},   RuleName{OracleRule::kFence, "fence"},
    RuleName{OracleRule::kExit, "exit"}, RuleName{OracleRule::kOrphan, "orphan"},
    RuleName{OracleRule::kSize, "size"}, RuleName{OracleRule::kDoor, "door"}};

}  // namespace

std::string_view to_string(OracleRule rule) {
  return std::ranges::find(kRules, rule, &RuleName::rule)->name;
}

std::set<OracleRule> all_oracle_rules() {
  std::set<OracleRule> rules;
  for (const RuleName& rule : kRules) rules.insert(rule.rule);
  return rules;
}

SwarmOracles::SwarmOracles(SimCluster& cluster, Pace pace)
    : cluster_(cluster),
      each_(pace.each),
      orphans_(kOnItsWay + pace.patience),
      last_(cluster.coordinator().glance()) {
  cluster_.watch_journal({.on_seat = [this](const SeatRecord& record) { on_seat(record); },
                          .on_event = [this](const EventRecord& event) { on_event(event); }});
  if (cluster_.keys() != nullptr)
    cluster_.network().watch_handshakes(
        [this](SimNodeId dialled_by, SimNodeId at, const Result<void>& shaken) {
          on_shaken(dialled_by, at, shaken);
        });
}

SwarmOracles::~SwarmOracles() {
  cluster_.watch_journal({});
  cluster_.network().watch_handshakes({});
}

double SwarmOracles::wall_seconds() const {
  return cluster_.runtime().node(kCoordinatorNode).wall_seconds();
}

void SwarmOracles::find(OracleRule rule, std::string what) {
  if (findings_.size() < kFindingsMax)
    findings_.push_back({.rule = rule, .when = cluster_.elapsed(), .what = std::move(what)});
}

void SwarmOracles::look() {
  look_at_exits();
  if (!cluster_.has_coordinator()) return;
  look_at_era();
  const Instant now = cluster_.runtime().now();
  if (now - sampled_ < each_) return;
  sampled_ = now;
  look_all();
}

// ---- No way back while every stage's state is somewhere -----------------------------------------

void SwarmOracles::look_at_era() {
  const RunGlance now = cluster_.coordinator().glance();
  const RunGlance before = std::exchange(last_, now);
  // Until the next commit it may go back for that, whomever it has waited for since.
  if (now.era == before.era && now.committed == before.committed &&
      now.waits_given_up > before.waits_given_up)
    last_.waits_given_up = before.waits_given_up;
  if (now.trains && !before.trains) trains_since_ = wall_seconds();
  const bool went_back = now.era.value > before.era.value;  // and is over that already
  if (!(now.goes_back || went_back) || !before.trains) return;
  if (now.waits_given_up > before.waits_given_up) return;  // run/bargain.h: it may
  Version version = before.committed;
  if (before.recovering) {  // it has yet to hear what the journal says of this era
    const auto commit = cluster_.journal().last_commit();
    if (!commit || !*commit || (*commit)->era != before.era.value) return;
    version = Version{(*commit)->version};
  }
  if (version == Version{}) return;  // nothing is lost: everybody can make it
  const auto stages = static_cast<std::uint16_t>(cluster_.config().pipeline.stages);
  std::string beside;
  for (std::uint16_t stage = 0; stage < stages; ++stage) {
    const auto how = held_as(StageId{stage}, before.era, version);
    // A coordinator that begins again knows nothing of the shadows that the one before had.
    if (!how || (*how == HeldState::How::kShadow && before.recovering)) return;
    if (*how != HeldState::How::kSeat)
      beside += fmt::format(", of stage {} as a {} alone", stage,
                            *how == HeldState::How::kKept ? "kept copy" : "shadow");
  }
  if (!each_by_another(stages, before.era, version)) return;
  find(OracleRule::kEra,
       fmt::format("the run goes back from version {}, which somebody holds of "
                   "every stage{}: {}",
                   version.value, beside, cluster_.coordinator().why_it_goes_back()));
}

std::optional<HeldState::How> SwarmOracles::held_as(StageId stage, Era era, Version version) const {
  std::optional<HeldState::How> best;
  for (std::size_t i = 0; i < cluster_.peers(); ++i)
    if (const auto how = held_by(i, stage, era, version); how && (!best || *how < *best))
      best = how;
  return best;
}

std::optional<HeldState::How> SwarmOracles::held_by(std::size_t peer, StageId stage, Era era,
                                                    Version version) const {
  std::optional<HeldState::How> best;
  if (!cluster_.is_running(peer)) return best;
  for (const HeldState& held : cluster_.peer(peer).held_states())
    if (held.stage == stage && held.era == era && held.version == version &&
        (!best || held.how < *best))
      best = held.how;
  return best;
}

// A process serves one stage, whatever it holds of others: stages and processes are matched.
bool SwarmOracles::each_by_another(std::uint16_t stages, Era era, Version version) const {
  std::map<std::size_t, std::uint16_t> stage_of;  // by peer
  std::set<std::size_t> tried;
  const std::function<bool(std::uint16_t)> place = [&](std::uint16_t stage) {
    for (std::size_t i = 0; i < cluster_.peers(); ++i) {
      if (tried.contains(i) || !held_by(i, StageId{stage}, era, version)) continue;
      tried.insert(i);
      const auto taken = stage_of.find(i);
      if (taken != stage_of.end() && !place(taken->second)) continue;
      stage_of[i] = stage;
      return true;
    }
    return false;
  };
  for (std::uint16_t stage = 0; stage < stages; ++stage) {
    tried.clear();
    if (!place(stage)) return false;
  }
  return true;
}

// ---- Nobody who was not hurt is fenced, or ends -------------------------------------------------

std::optional<SimNodeId> SwarmOracles::node_of(PeerId peer) const {
  for (std::size_t i = 0; i < cluster_.peers(); ++i)
    if (cluster_.seat_of(i).peer == peer) return SimCluster::node_of_peer(i);
  return std::nullopt;
}

void SwarmOracles::on_seat(const SeatRecord& record) {
  last_seat_ = record.seat;
  ++accounted_;
  if (cluster_.keys() != nullptr && cluster_.keys()->is_strangers_key(record.key))
    find(OracleRule::kDoor, fmt::format("{} is given to a stranger", to_string(record.seat)));
}

void SwarmOracles::on_shaken(SimNodeId dialled_by, SimNodeId at, const Result<void>& shaken) {
  const bool stranger = cluster_.keys()->is_stranger(dialled_by);
  if (stranger && shaken)
    find(OracleRule::kDoor,
         fmt::format("node {} takes a link of the stranger at node {}", at, dialled_by));
  if (!stranger && !shaken && shaken.error().code == ErrorCode::kRefused)
    find(OracleRule::kDoor,
         fmt::format("node {} refuses node {}: {}", at, dialled_by, shaken.error().what));
}

// It is written later than it happened.
void SwarmOracles::on_event(const EventRecord& event) {
  ++accounted_;
  if (event.kind != "peer_lost") return;
  // Before a run trains nobody holds what others do not.
  const bool trained = last_.trains && event.wall_seconds > trains_since_;
  const auto node = node_of(last_seat_.peer);
  if (!node || !trained || cluster_.runtime().hurt(*node) > 0) return;
  find(OracleRule::kFence,
       fmt::format("node {} was not hurt and is fenced: {}", *node, event.detail));
}

void SwarmOracles::look_at_exits() {
  if (cluster_.ended() == ended_.size()) return;
  for (std::size_t i = 0; i < cluster_.peers(); ++i) {
    const auto& outcome = cluster_.outcome_of(i);
    if (!outcome || !ended_.insert(i).second || outcome->exit_code == 0) continue;
    const SimNodeId node = SimCluster::node_of_peer(i);
    if (cluster_.runtime().hurt(node) == 0 && !last_.ended)
      find(OracleRule::kExit, fmt::format("node {} was not hurt and ends with {}: {}", node,
                                          outcome->exit_code, outcome->sentence));
  }
}

// ---- Now and then -------------------------------------------------------------------------------

void SwarmOracles::look_all() {
  if (!cluster_.has_coordinator()) return;
  std::set<MicrobatchId> tried;
  for (std::size_t i = 0; i < cluster_.peers(); ++i) {
    if (!cluster_.is_running(i)) continue;
    tried.merge(cluster_.peer(i).tries());
    if (auto wrong = sizes_.sample(fmt::format("node {}", SimCluster::node_of_peer(i)),
                                   cluster_.peer(i).sizes()))
      find(OracleRule::kSize, std::move(*wrong));
  }
  if (auto wrong = sizes_.sample("the coordinator", cluster_.coordinator().sizes()))
    find(OracleRule::kSize, std::move(*wrong));
  const NamedSize journal{"journal.writes", cluster_.journal_writes(),
                          kWritesAtOnce + 8 * (accounted_ + last_.committed.value)};
  if (auto wrong = sizes_.sample("the run", {&journal, 1}))
    find(OracleRule::kSize, std::move(*wrong));
  const bool calm = cluster_.runtime().is_alive(kCoordinatorNode) && !last_.is_held_up &&
                    cluster_.runtime().frozen() == 0 && cluster_.network().is_open();
  if (const auto orphan = orphans_.sample(cluster_.runtime().now(),
                                          cluster_.coordinator().relying_on_tries(), tried, calm))
    find(OracleRule::kOrphan, fmt::format("nobody tries microbatch {} of {}, and it is waited for",
                                          orphan->index, to_string(orphan->phase)));
}

}  // namespace swarmline
