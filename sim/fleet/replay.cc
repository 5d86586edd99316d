#include "sim/fleet/replay.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include "balancer/hand_over_worth.h"
#include "base/check.h"
#include "base/hours.h"
#include "base/rng.h"

namespace swarmline {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr int kPlansAnInstantMax = 4;
constexpr double kOpenStepDone = 0.5;  // of an open step, on average
constexpr double kHandOverMargin = 2;  // seconds, as a coordinator's knobs have it

struct Shadow {
  std::uint32_t stage = 0;
  double ready_at = 0;
};

struct Peer {
  std::optional<std::uint32_t> stage;  // serves it from `serves_at` on
  double serves_at = 0;
  double holds_at = 0;           // serves, and has all of the stage's state
  double waits_until = 0;        // for the rest of it, its stage having stepped
  bool is_new_to_stage = false;  // downloads the stage's state until holds_at
  bool at_risk = false;
  std::vector<Shadow> shadows;
};

class Replay {
 public:
  Replay(const Fleet& fleet, const ReplayOptions& options)
      : fleet_(fleet),
        options_(options),
        leavers_(Rng(options.seed).split("leavers")),
        seats_(Rng(options.seed).split("seats")),
        end_(fleet.seconds) {
    plan_options_ = options.plan;
    plan_options_.link_bits_per_second = options.link_bits_per_second;
    plan_options_.shadow_load = shadow_load();
    plan_options_.download_load = options.shadow_link_share;
  }

  const ReplayResult& run() {
    next_tick_ = options_.policy == ReplayPolicy::kPaperRule ? options_.period_seconds : kNever;
    next_commit_ = free_of_charge() ? kNever : options_.step_seconds;
    std::size_t next_event = 0;
    while (true) {
      const double event_at =
          next_event < fleet_.events.size() ? fleet_.events[next_event].seconds : kNever;
      const double until = std::min({event_at, next_tick_, next_commit_, next_arrival(), end_});
      integrate(until);
      now_ = until;
      if (now_ >= end_) break;
      at_commit_ = next_commit_ <= now_;
      if (at_commit_) commit();
      finish_downloads();
      if (event_at <= now_) apply(fleet_.events[next_event++]);
      if (next_tick_ <= now_) {
        paper_rule();
        next_tick_ += options_.period_seconds;
      }
      if (options_.policy == ReplayPolicy::kSwarmline) replan();
    }
    result_.seconds = end_;
    return result_;
  }
  std::vector<WorkSpan> timeline() { return timeline_.finish(end_); }

 private:
  // ---- Costs -----------------------------------------------------------------------------------
  double transfer_seconds(double bytes_per_parameter) const {
    return options_.parameters * bytes_per_parameter * 8 / options_.link_bits_per_second;
  }
  double download_seconds() const { return transfer_seconds(options_.state_bytes_per_parameter); }
  double served_bytes() const {
    return std::min(options_.served_bytes_per_parameter, options_.state_bytes_per_parameter);
  }
  double rest_seconds() const {  // beside its work
    return transfer_seconds(options_.state_bytes_per_parameter - served_bytes()) /
           options_.rest_link_share;
  }
  double shadow_download_seconds() const { return download_seconds() / options_.shadow_link_share; }
  bool is_noticed(double in_time_for) const {
    return options_.notice_seconds > 0 && options_.notice_seconds >= in_time_for;
  }
  bool free_of_charge() const { return options_.state_bytes_per_parameter == 0; }
  double handover_seconds() const {
    return free_of_charge() ? 0 : transfer_seconds(options_.handover_bytes_per_parameter);
  }
  // Before a mover leaves its stage: nothing new comes to it until it has handed over its sums, or
  // the step ends.
  double drain_seconds() const {
    return at_commit_ ? 0 : std::min(handover_seconds(), next_commit_ - now_);
  }
  bool is_long_step() const {
    const double round = transfer_seconds(2 * options_.gradient_bytes_per_parameter);
    return free_of_charge() || is_worth_a_hand_over(next_commit_ - now_, round, kHandOverMargin);
  }
  double shadow_load() const {
    return free_of_charge()
               ? 0
               : transfer_seconds(options_.gradient_bytes_per_parameter) / options_.step_seconds;
  }

  // ---- Time ------------------------------------------------------------------------------------
  double next_arrival() const {
    double next = kNever;
    for (const auto& [id, peer] : peers_) {
      if (!peer.stage) continue;
      for (const double at : {peer.serves_at, peer.holds_at, peer.waits_until})
        if (at > now_) next = std::min(next, at);
      for (const Shadow& shadow : peer.shadows) {
        if (shadow.ready_at > now_) next = std::min(next, shadow.ready_at);
      }
    }
    return next;
  }
  bool serves(const Peer& peer) const { return peer.stage && peer.serves_at <= now_; }
  double speed(const Peer& peer) const {
    if (peer.waits_until > now_) return 0;
    double load = peer.holds_at > now_ ? options_.rest_load : 0;
    for (const Shadow& shadow : peer.shadows)
      load += shadow.ready_at > now_ ? options_.shadow_link_share : shadow_load();
    return std::max(0.0, 1 - load);
  }
  double throughput() const {
    std::vector<double> sums(options_.stages, 0);
    std::uint32_t serving = 0;
    for (const auto& [id, peer] : peers_) {
      if (!serves(peer)) continue;
      sums[*peer.stage] += speed(peer);
      ++serving;
    }
    if (options_.policy == ReplayPolicy::kBound) return best_of(serving);
    return std::ranges::min(sums);
  }
  double best_of(std::size_t peers) const {
    return std::floor(static_cast<double>(peers) / options_.stages);
  }
  std::vector<std::uint32_t> seated() const {  // arriving ones too
    std::vector<std::uint32_t> counts(options_.stages, 0);
    for (const auto& [id, peer] : peers_) {
      if (peer.stage) ++counts[*peer.stage];
    }
    return counts;
  }
  void integrate(double until) {
    const double optimal = best_of(peers_.size());
    const double achieved = throughput();
    timeline_.now().speed = achieved;
    timeline_.now().followers = followers();
    timeline_.advance(until);
    const auto add = [&](ReplaySpan& span, double from, double to) {
      const double seconds = std::min(until, to) - std::max(now_, from);
      if (seconds <= 0) return;
      span.achieved += achieved * seconds;
      span.optimal += optimal * seconds;
    };
    if (optimal == 0) {
      result_.seconds_without_optimum += until - now_;
      return;
    }
    add(result_.overall, 0, end_);
    add(result_.first_hour, 0, kSecondsPerHour);
    add(result_.last_hour, end_ - kSecondsPerHour, end_);
  }
  std::uint64_t followers() const {
    std::uint64_t count = 0;
    for (const auto& [id, peer] : peers_)
      for (const Shadow& shadow : peer.shadows) count += shadow.ready_at <= now_ ? 1 : 0;
    return count;
  }
  void finish_downloads() {
    for (auto& [id, peer] : peers_) {
      if (peer.holds_at <= now_) peer.is_new_to_stage = false;
    }
  }
  // Who can't step waits for what it lacks, and has nothing else to do. Parameters on their way are
  // computed on no more: who downloads them does so until it can step.
  void commit() {
    next_commit_ += options_.step_seconds;
    if (options_.policy == ReplayPolicy::kBound) return;
    for (auto& [id, peer] : peers_) {
      if (!peer.stage || peer.holds_at <= std::max(now_, peer.serves_at)) continue;
      if (!serves(peer)) {
        peer.serves_at += download_seconds() - transfer_seconds(served_bytes());
        peer.holds_at = peer.serves_at;
        continue;
      }
      if (peer.waits_until > now_) continue;
      peer.holds_at = now_ + (peer.holds_at - now_) * options_.rest_link_share;
      peer.waits_until = peer.holds_at;
    }
  }

  // ---- The fleet --------------------------------------------------------------------------------
  void apply(const FleetEvent& event) {
    const auto before = seated_serving();
    // Whose name returns at once is a new machine all the same.
    for (const auto node : event.removed) remove(nodes_.at(node));
    if (!fleet_.names_nodes) {
      while (peers_.size() > event.count) {
        auto victim = peers_.begin();
        std::advance(victim, static_cast<std::ptrdiff_t>(leavers_.below(peers_.size())));
        remove(victim->first);
      }
    }
    if (options_.policy != ReplayPolicy::kBound) count_emptied(before);
    for (const auto node : event.added) {
      nodes_[node] = add();
      const auto& safe = options_.first_safe_node;
      peers_.at(nodes_[node]).at_risk = safe && node < *safe;
    }
    while (!fleet_.names_nodes && peers_.size() < event.count) add();
  }
  void remove(std::uint32_t id) {
    const Peer& peer = peers_.at(id);
    if (serves(peer) && !is_noticed(handover_seconds())) {
      const double share = 1.0 / serving_at(*peer.stage);
      WorkSpan& now = timeline_.now();
      now.steps_again = std::min(now.steps_again + kOpenStepDone * share, kOpenStepDone);
      now.stall_seconds = std::max(now.stall_seconds, options_.loss_stall_seconds);
    }
    peers_.erase(id);
  }
  std::uint32_t serving_at(std::uint32_t stage) const {
    std::uint32_t count = 0;
    for (const auto& [id, peer] : peers_) count += serves(peer) && *peer.stage == stage;
    return count;
  }
  std::uint32_t add() {
    const std::uint32_t id = ++last_id_;
    Peer& peer = peers_[id];
    ++result_.joins;
    switch (options_.policy) {
      case ReplayPolicy::kNone:
        sit(peer, now_ > 0 ? static_cast<std::uint32_t>(seats_.below(options_.stages))
                           : (id - 1) % options_.stages);
        break;
      case ReplayPolicy::kPaperRule: {
        const auto counts = seated();
        sit(peer, static_cast<std::uint32_t>(std::ranges::min_element(counts) - counts.begin()));
        break;
      }
      case ReplayPolicy::kBound:
        sit(peer, 0);
        break;
      case ReplayPolicy::kSwarmline:
        break;  // seated by the plan that follows the event
    }
    return id;
  }
  // A peer takes a stage whose state it must fetch, except at the run's beginning.
  void sit(Peer& peer, std::uint32_t stage) {
    peer.stage = stage;
    peer.is_new_to_stage = now_ > 0;
    timeline_.now().fetches += now_ > 0 ? 1 : 0;
    peer.serves_at = now_ > 0 ? now_ + transfer_seconds(served_bytes()) : 0;
    const bool lacks_more = now_ > 0 && options_.policy != ReplayPolicy::kBound;
    peer.holds_at = peer.serves_at + (lacks_more ? rest_seconds() : 0);
    peer.waits_until = 0;
  }
  void leave_and_sit(Peer& peer, std::uint32_t stage) {
    const double drained = drain_seconds();
    sit(peer, stage);
    peer.serves_at += drained;
    peer.holds_at += drained;
  }
  std::vector<std::uint32_t> seated_serving() const {
    std::vector<std::uint32_t> counts(options_.stages, 0);
    for (const auto& [id, peer] : peers_) {
      if (peer.stage && !peer.is_new_to_stage) ++counts[*peer.stage];
    }
    return counts;
  }
  void count_emptied(const std::vector<std::uint32_t>& before) {
    const auto after = seated_serving();
    for (std::uint32_t s = 0; s < options_.stages; ++s) {
      if (before[s] == 0 || after[s] > 0) continue;
      ++result_.stages_emptied;
      if (has_ready_shadow(s)) {
        ++result_.stages_survived;
        continue;
      }
      if (is_noticed(shadow_download_seconds()) && !peers_.empty()) continue;
      timeline_.now().rolls_back = true;
      timeline_.now().fetches += peers_.size();
      timeline_.now().stall_seconds = std::max(timeline_.now().stall_seconds, download_seconds());
    }
  }
  bool has_ready_shadow(std::uint32_t stage) const {
    for (const auto& [id, peer] : peers_) {
      for (const Shadow& shadow : peer.shadows) {
        if (shadow.stage == stage && shadow.ready_at <= now_) return true;
      }
    }
    return false;
  }

  // ---- The paper's rule -------------------------------------------------------------------------
  // One peer of the least loaded stage (most peers) goes to the most loaded one. Without its own
  // threshold it would swap peers between stages one apart for ever: two apart is asked for, which
  // favours it.
  void paper_rule() {
    const auto counts = seated();
    const auto least = std::min_element(counts.begin(), counts.end());
    const auto most = std::max_element(counts.begin(), counts.end());
    if (*most < *least + 2) return;
    const auto from = static_cast<std::uint32_t>(most - counts.begin());
    for (auto& [id, peer] : peers_) {
      if (!serves(peer) || *peer.stage != from) continue;
      leave_and_sit(peer, static_cast<std::uint32_t>(least - counts.begin()));
      ++result_.moves;
      return;
    }
  }

  // ---- Ours -------------------------------------------------------------------------------------
  PlanSnapshot snapshot() const {
    PlanSnapshot snapshot;
    const auto state = static_cast<std::uint64_t>(options_.parameters * served_bytes());
    snapshot.stages.assign(options_.stages, {.cost = 1, .state_bytes = state});
    for (const auto& [id, peer] : peers_) {
      PlanPeer facts;
      facts.peer = PeerId(id);
      facts.at_risk = peer.at_risk;
      if (peer.stage) facts.stage = StageId(static_cast<std::uint16_t>(*peer.stage));
      facts.arriving = peer.stage && peer.holds_at > now_;
      for (const Shadow& shadow : peer.shadows) {
        facts.shadows.push_back({.stage = StageId(static_cast<std::uint16_t>(shadow.stage)),
                                 .ready = shadow.ready_at <= now_});
      }
      snapshot.peers.push_back(std::move(facts));
    }
    return snapshot;
  }
  // What a plan does at once may let the next one do more: who has just sat down may host a shadow.
  void replan() {
    for (int round = 0; round < kPlansAnInstantMax; ++round) {
      const auto serving = seated_serving();
      const SwarmPlan plan = plan_swarm(snapshot(), plan_options_);
      if (plan.moves.empty() && plan.shadows.empty()) return;
      for (const PlanMove& move : plan.moves) carry_out(move, serving);
      for (const ShadowChange& change : plan.shadows) carry_out(change);
    }
  }
  void carry_out(const PlanMove& move, const std::vector<std::uint32_t>& serving) {
    SWARMLINE_CHECK(move.kind != MoveKind::kRetire);  // all speeds are equal here
    Peer& peer = peers_.at(move.peer.value);
    if (!move.from) return sit(peer, move.to.value);
    const bool rescue = serving[move.to.value] == 0;
    if (!rescue && !at_commit_ && !is_long_step()) return;
    ++result_.moves;
    peer.shadows.clear();
    if (move.kind == MoveKind::kDownload) {
      return rescue ? sit(peer, move.to.value) : leave_and_sit(peer, move.to.value);
    }
    ++result_.instant_moves;
    peer.stage = move.to.value;
    peer.serves_at = now_ + (rescue ? 0 : drain_seconds());
    peer.holds_at = peer.serves_at;  // its shadow does already
    peer.waits_until = 0;
  }
  void carry_out(const ShadowChange& change) {
    Peer& peer = peers_.at(change.peer.value);
    if (!change.add) {
      std::erase_if(peer.shadows, [&](const Shadow& s) { return s.stage == change.stage.value; });
      return;
    }
    ++result_.shadow_downloads;
    timeline_.now().fetches += now_ > 0 ? 1 : 0;
    // At the run's beginning everybody has the initial state.
    peer.shadows.push_back({.stage = change.stage.value,
                            .ready_at = now_ + (now_ > 0 ? shadow_download_seconds() : 0)});
  }

  const Fleet& fleet_;
  const ReplayOptions options_;
  PlanOptions plan_options_;
  Rng leavers_;
  Rng seats_;
  double end_;
  double now_ = 0;
  double next_tick_ = kNever;
  double next_commit_ = 0;
  bool at_commit_ = false;
  std::map<std::uint32_t, Peer> peers_;
  std::map<std::uint32_t, std::uint32_t> nodes_;  // machine -> peer
  std::uint32_t last_id_ = 0;
  ReplayResult result_;
  WorkTimeline timeline_;
};

void check(const ReplayOptions& options) {
  SWARMLINE_CHECK(options.stages > 0 && options.period_seconds > 0);
  SWARMLINE_CHECK(options.link_bits_per_second > 0 && options.step_seconds > 0);
  for (const double share : {options.shadow_link_share, options.rest_link_share})
    SWARMLINE_CHECK(share > 0 && share <= 1);
}

}  // namespace

ReplayResult replay_fleet(const Fleet& fleet, const ReplayOptions& options) {
  check(options);
  return Replay(fleet, options).run();
}

std::vector<WorkSpan> replay_timeline(const Fleet& fleet, const ReplayOptions& options) {
  check(options);
  Replay replay(fleet, options);
  replay.run();
  return replay.timeline();
}

void add_result(ReplayResult& sum, const ReplayResult& one) {
  const auto add_span = [](ReplaySpan& to, const ReplaySpan& from) {
    to.achieved += from.achieved;
    to.optimal += from.optimal;
  };
  add_span(sum.overall, one.overall);
  add_span(sum.first_hour, one.first_hour);
  add_span(sum.last_hour, one.last_hour);
  sum.seconds += one.seconds;
  sum.seconds_without_optimum += one.seconds_without_optimum;
  sum.joins += one.joins;
  sum.moves += one.moves;
  sum.instant_moves += one.instant_moves;
  sum.shadow_downloads += one.shadow_downloads;
  sum.stages_emptied += one.stages_emptied;
  sum.stages_survived += one.stages_survived;
}

}  // namespace swarmline
