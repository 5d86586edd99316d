#include "pipeline/coordinator/steps/leases.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/marks.h"
#include "pipeline/protocol/message_kinds.h"
#include "pipeline/source/lease_window.h"

namespace swarmline {

namespace {

// Of the fastest source's time for a microbatch: a slower one would be what the step waits for
// next.
constexpr double kSlowerMax = 2;

std::string pack_mask(const StageMask& mask) {
  if (std::all_of(mask.begin(), mask.end(), [](bool wanted) { return wanted; })) return {};
  std::string packed((mask.size() + 7) / 8, '\0');
  for (std::size_t s = 0; s < mask.size(); ++s)
    if (mask[s]) packed[s / 8] = static_cast<char>(packed[s / 8] | 1 << (s % 8));
  return packed;
}

// Fixed routes have an order of their own, in which sources take turns.
std::uint32_t shared_window(const RunConfig& config) {
  return config.pipeline.wiring == WiringKind::kStatic ? 0 : window_for(config.pipeline);
}

}  // namespace

Leases::Leases(const RunShape& shape, const Alarms& alarms, Ledger& ledger,
               const OpenPhases& phases, const Membership& members, Outbox& outbox)
    : alarms_(alarms),
      ledger_(ledger),
      phases_(phases),
      members_(members),
      outbox_(outbox),
      window_(shared_window(shape.config)),
      stages_(shape.config.pipeline.stages),
      shares_(window_ > 0) {
  if (window_ > 0 && shape.config.pipeline.in_flight == 0) depth_.emplace(window_);
}

void Leases::want(const Seat& source, std::uint64_t total, std::uint64_t finished) {
  const auto [at, is_new] = sources_.try_emplace(source.peer);
  if (is_new) shares_of_.reset();
  at->second.seat = source;
  Counts& counts = at->second.counts;
  counts.wanted = std::max(counts.wanted, total);
  if (depth_ && finished > counts.finished)
    depth_->on_finished(source.peer, finished - counts.finished, alarms_.now());
  counts.finished = std::max(counts.finished, finished);
  dirty_ = true;
}

void Leases::restore(const Seat& source, const Counts& counts) {
  const Source& restored = sources_[source.peer] = {.seat = source, .counts = counts, .share = 0};
  if (depth_) depth_->on_restored(source.peer, restored.under_way());
  shares_of_.reset();
  dirty_ = true;
}

void Leases::refresh_shares() {
  if (!shares_.on() || shares_of_ == members_.changes()) return;
  shares_of_ = members_.changes();
  std::map<PeerId, double> speeds;
  for (const auto& [peer, source] : sources_) {
    if (!may_take(source)) continue;
    const double seconds = members_.members().at(peer).seconds_per_microbatch;
    speeds.emplace(peer, seconds > 0 ? 1 / seconds : 0);
  }
  const std::uint64_t count = speeds.size();
  const std::uint64_t depth =
      depth_ ? depth_->of_all(count, members_.all_have_memory_for(LeaseDepth::kMostWithMemory))
             : window_ * count;
  shares_.set(depth, std::move(speeds));
  for (auto& [peer, source] : sources_) source.share = shares_.share_of(peer);
}

std::vector<LeaseDepth::StageSpeed> Leases::stage_speeds() const {
  std::vector<LeaseDepth::StageSpeed> stages(stages_);
  std::vector<bool> known(stages_, true);
  for (const auto& [peer, member] : members_.members()) {
    if (!members_.serves(member.seat)) continue;
    const std::uint32_t at = member.seat.stage.value;
    LeaseDepth::StageSpeed& stage = stages[at];
    const double seconds = member.seconds_per_microbatch;
    ++stage.peers;
    known[at] = known[at] && seconds > 0;
    stage.rate = known[at] ? stage.rate + 1 / seconds : 0;
  }
  return stages;
}

std::uint64_t Leases::under_way() const {
  std::uint64_t all = 0;
  for (const auto& [peer, source] : sources_) all += source.under_way();
  return all;
}

void Leases::pump() {
  dirty_ = false;
  refresh_shares();
  std::vector<Phase> phases = ledger_.open_phases();
  std::sort(phases.begin(), phases.end(), [](const Phase& a, const Phase& b) {
    return a.kind != b.kind ? a.kind > b.kind : a.step < b.step;
  });
  Granted granted;
  for (const Phase& phase : phases) {
    if (!phases_.may_lease(phase) || ledger_.leasable(phase) == 0) continue;
    const std::uint64_t left = ledger_.leasable(phase) + under_way();
    bool progress = true;
    while (progress && ledger_.leasable(phase) > 0) {
      progress = false;
      for (auto& [peer, source] : sources_)
        if (source.counts.granted < source.counts.wanted &&
            shares_.may_have_another(source.share, source.under_way(), left) && may_take(source))
          progress = grant_one(phase, source, granted) || progress;
    }
  }
  send(granted);
}

bool Leases::may_take(const Source& source) const {
  return members_.serves(source.seat) && !members_.spared(members_.members().at(source.seat.peer));
}

bool Leases::grant_one(const Phase& phase, Source& source, Granted& granted) {
  bool any = false;
  std::vector<Instant>& leased_at = leased_at_[phase];
  leased_at.resize(ledger_.indices(phase));
  for (const Lease& lease : ledger_.lease(phase, source.seat, 1)) {
    for (std::uint32_t i = 0; i < lease.count; ++i) {
      leased_at[lease.first + i] = alarms_.now();
      wire::Lease* out = granted[source.seat.peer].add_leases();
      *out->mutable_phase() = to_wire(lease.phase);
      out->set_index(lease.first + i);
      out->set_attempt(lease.attempt.value);
      out->set_opening(phases_.epoch(lease.phase).value);
      if (lease.phase.kind == PhaseKind::kTrain) out->set_stage_mask(pack_mask(lease.stages));
    }
    source.counts.granted += lease.count;
    if (depth_)
      for (std::uint32_t i = 0; i < lease.count; ++i)
        depth_->on_leased(source.seat.peer, phase.kind == PhaseKind::kTrain, alarms_.now());
    any = true;
  }
  return any;
}

void Leases::send(const Granted& granted) {
  for (const auto& [peer, leases] : granted)
    outbox_.send(sources_.at(peer).seat, make_frame(MessageKind::kLeases, leases));
}

std::optional<PeerId> Leases::idlest(PeerId holder) const {
  const auto seconds = [this](PeerId peer) {
    return members_.members().at(peer).seconds_per_microbatch;
  };
  double fastest = std::numeric_limits<double>::infinity();
  for (const auto& [peer, source] : sources_)
    if (seconds(peer) > 0) fastest = std::min(fastest, seconds(peer));
  std::optional<PeerId> idlest;
  std::uint64_t most = 0;
  for (const auto& [peer, source] : sources_) {
    const Counts& counts = source.counts;
    if (peer == holder || counts.granted >= counts.wanted || !may_take(source) ||
        seconds(peer) > kSlowerMax * fastest)
      continue;
    if (const std::uint64_t room = counts.wanted - counts.granted; room > most) {
      idlest = peer;
      most = room;
    }
  }
  return idlest;
}

bool Leases::lease_again(const Phase& phase, std::uint32_t index) {
  const std::optional<Seat> holder = ledger_.source(phase, index);
  if (!holder) return false;
  const std::optional<PeerId> other = idlest(holder->peer);
  if (!other) return false;
  SWARMLINE_MARK("leases.leased_again");
  ledger_.expire(phase, index);
  grant_one(phase, sources_.at(*other), again_);
  return true;
}

void Leases::send_again() {
  send(std::exchange(again_, {}));
}

std::optional<Instant> Leases::leased_at(const MicrobatchId& microbatch) const {
  const auto phase = leased_at_.find(microbatch.phase);
  if (phase == leased_at_.end() || microbatch.index >= phase->second.size()) return std::nullopt;
  const Instant when = phase->second[microbatch.index];
  return when == Instant{} ? std::nullopt : std::optional(when);
}

void Leases::on_seat_lost(const SeatLoss& lost) {
  if (sources_.erase(lost.seat.peer) > 0) shares_of_.reset();
  if (depth_) depth_->forget(lost.seat.peer);
  dirty_ = true;  // what it was leased is free
}

void Leases::on_retired(const Phase& phase) {
  leased_at_.erase(phase);
  if (phase.kind != PhaseKind::kTrain) return;
  shares_of_.reset();  // speeds were measured anew
  if (depth_) depth_->on_step_over(stage_speeds());
}

void Leases::on_rollback() {
  sources_.clear();
  if (depth_) depth_->forget_all();
  shares_of_.reset();
  again_.clear();
  leased_at_.clear();
}

void Leases::check_invariants() const {
  for (const auto& [peer, source] : sources_) SWARMLINE_CHECK(source.seat.peer == peer);
  SWARMLINE_CHECK(again_.empty());
}

}  // namespace swarmline
