#include "pipeline/stage/phases/phase_runner.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/limits.h"
#include "base/marks.h"
#include "pipeline/protocol/message_kinds.h"

namespace swarmline {

PhaseRunner::PhaseRunner(StageContext& context, StageJobs& jobs, PhaseBook& phases,
                         Contributions& contributions, MicrobatchFlow& flow,
                         GradientExchange& gradients, LeaseIntake& leases, SumHandOver& hand_over,
                         std::function<void()> on_settled)
    : context_(context),
      jobs_(jobs),
      phases_(phases),
      contributions_(contributions),
      flow_(flow),
      gradients_(gradients),
      leases_(leases),
      hand_over_(hand_over),
      on_settled_(std::move(on_settled)) {}

// ---- Open ---------------------------------------------------------------------------------------

Result<void> PhaseRunner::check_open(const wire::OpenPhase& open, Version committed) const {
  const Phase phase = from_wire(open.phase());
  const bool train = phase.kind == PhaseKind::kTrain;
  if (phases_.open_phases() >= kOpenPhasesMax || phases_.beyond_reach(phase) ||
      phases_.status(phase) == PhaseStatus::kOver || phases_.microbatches(phase) > 0 ||
      open.microbatches() == 0 || open.microbatches() > Limits::microbatches_per_step_max ||
      (train && open.microbatches() != context_.config.microbatches_per_step()))
    return fail(ErrorCode::kCorrupt, to_string(phase) + " can't be opened now");
  const bool here = open.version() == committed.value ||
                    (context_.config.pipeline.delay == 1 && open.version() + 1 == committed.value);
  if (!here)
    return fail(ErrorCode::kIncompatible,
                fmt::format("{} needs version {}, this peer has {}", to_string(phase),
                            open.version(), committed.value));
  return {};
}

Result<void> PhaseRunner::on_open(const wire::OpenPhase& open, Version committed) {
  const Phase phase = from_wire(open.phase());
  const Version version{open.version()};
  const bool train = phase.kind == PhaseKind::kTrain;
  if (opened_before_.contains(phase)) return open_again(open);
  SWARMLINE_TRY(check_open(open, committed));
  SWARMLINE_TRY(context_.codecs.open(phase, open));
  phases_.announce(phase, version, open.microbatches(), PhaseEpoch{open.opening()});
  if (train) contributions_.open(phase);
  if (open.sealed())  // frozen, with nothing in it
    contributions_.settle(phase, {}, [](const Result<std::vector<std::uint32_t>>&) {});
  jobs_.run(
      [this, phase, version, train]() -> Result<void> {
        if (train) context_.state.begin(phase.step);
        return context_.state.use(version);  // ready before the first microbatch comes
      },
      [this, phase, sealed = open.sealed()] {
        if (!sealed) activate(phase);
      });
  return {};
}

// What is in the sums stays, and more may come.
Result<void> PhaseRunner::open_again(const wire::OpenPhase& open) {
  SWARMLINE_MARK("phases.opened_again_by_another_coordinator");
  const Phase phase = from_wire(open.phase());
  opened_before_.erase(phase);
  if (open.version() != phases_.version(phase).value ||
      open.microbatches() != phases_.microbatches(phase))
    return fail(ErrorCode::kCorrupt, to_string(phase) + " is opened again as another one");
  phases_.reopen(phase, PhaseEpoch{open.opening()});
  contributions_.reopen(phase);
  jobs_.barrier([this, phase] { activate(phase); });
  return {};
}

void PhaseRunner::activate(const Phase& phase) {
  // Over, or about to be sealed, before the device came to it.
  if (phases_.microbatches(phase) == 0 || (settling_ && settling_phase_ == phase)) return;
  phases_.activate(phase);
  flow_.on_active(phase);
}

Result<void> PhaseRunner::on_leases(const wire::Leases& leases) {
  SWARMLINE_TRY(leases_.take(static_cast<std::uint64_t>(leases.leases_size())));
  for (const wire::Lease& lease : leases.leases()) {
    const MicrobatchId id{from_wire(lease.phase()), lease.index()};
    const AttemptId attempt{id, Attempt{lease.attempt()}};
    const PhaseEpoch epoch{lease.opening()};
    if (phases_.status(id.phase) != PhaseStatus::kOver &&
        id.index >= phases_.microbatches(id.phase))
      return fail(ErrorCode::kCorrupt, "a lease of a microbatch that its phase does not have");
    if (phases_.status(id.phase, epoch) == PhaseStatus::kOver || flow_.knows(attempt) ||
        leases_.holds(attempt)) {
      leases_.on_finished();
      continue;
    }
    if (leases_.hold(attempt, epoch, lease.stage_mask())) continue;
    if (!start(attempt, epoch, lease.stage_mask())) return {};
  }
  if (!leases_.held().empty()) start_held();
  return {};
}

bool PhaseRunner::start(const AttemptId& attempt, PhaseEpoch epoch, const std::string& stage_mask) {
  auto data = leases_.read(attempt.microbatch);
  if (!data) {
    context_.fail(data.error());
    return false;
  }
  flow_.start_local(attempt, epoch, stage_mask, context_.config.batch.microbatch,
                    std::move(data->tokens), std::move(data->targets));
  return true;
}

void PhaseRunner::start_held() {
  for (const LeaseIntake::Held& held : leases_.take_ready()) {
    const bool over =
        phases_.status(held.attempt.microbatch.phase, held.epoch) == PhaseStatus::kOver;
    if (over || flow_.knows(held.attempt))
      leases_.on_finished();
    else if (!start(held.attempt, held.epoch, held.stage_mask))
      return;
  }
  leases_.want();
  leases_.fetch();
}

// What is held of it will not be computed here.
void PhaseRunner::drop(const Phase& phase) {
  flow_.drop(phase);
  const auto dropped = leases_.drop(
      [&](const LeaseIntake::Held& held) { return held.attempt.microbatch.phase == phase; });
  if (dropped.empty()) return;
  SWARMLINE_MARK("phases.held_leases_dropped");
  for (std::size_t i = 0; i < dropped.size(); ++i) leases_.on_finished();
  leases_.want();
  leases_.fetch();
}

// ---- Seal and reopen ----------------------------------------------------------------------------

Result<std::set<std::uint32_t>> PhaseRunner::owned_of(const wire::Seal& seal) const {
  std::set<std::uint32_t> owned;
  for (const wire::Range& range : seal.owned()) {
    const std::uint64_t end = std::uint64_t{range.first()} + range.count();
    if (range.count() == 0 || end > context_.config.microbatches_per_step() ||
        owned.contains(range.first()))
      return fail(ErrorCode::kCorrupt, "a seal with indices that the step does not have");
    for (std::uint32_t i = 0; i < range.count(); ++i) owned.insert(range.first() + i);
  }
  return owned;
}

Result<void> PhaseRunner::on_seal(const wire::Seal& seal, Version committed) {
  SealedPhase sealed{.phase = from_wire(seal.phase()), .groups = {}};
  const Phase phase = sealed.phase;
  if (phase.kind != PhaseKind::kTrain || phase.step != committed.value ||
      phases_.microbatches(phase) == 0)
    return fail(ErrorCode::kCorrupt, to_string(phase) + " can't be sealed now");
  auto owned = owned_of(seal);
  if (!owned) return std::unexpected(owned.error());
  for (const wire::ReduceGroup& group : seal.groups()) {
    if (!gradients_.in_group(GroupId{group.group()}))
      return fail(ErrorCode::kIncompatible, "a seal names a group that this peer is not in");
    SealedGroup& to = sealed.groups.emplace_back();
    to.group = GroupId{group.group()};
    to.attempt = RoundAttempt{group.attempt()};
    for (const wire::GroupMember& member : group.members())
      to.members.push_back({from_wire(member.seat()), member.address()});
    to.slice_ends.assign(group.slice_ends().begin(), group.slice_ends().end());
    to.speakers.assign(group.speakers().begin(), group.speakers().end());
    for (const std::uint32_t kind : group.fabrics())
      to.fabrics.push_back(static_cast<FabricKind>(kind));
    to.meeting = group.meeting();
  }
  // What is averaged of it are sums that change now.
  if (phase == settling_phase_ && *owned != sealed_owned_) gradients_.abandon(phase);
  settling_ = true;
  settling_phase_ = phase;
  sealed_owned_ = *owned;
  phases_.seal(phase);
  hand_over_.end(phase);
  drop(phase);
  // Jobs of the phase that are on the device end first, so that what they added is known.
  jobs_.barrier(
      [this, sealed = std::move(sealed), owned = std::move(*owned), coordinator = coordinators_] {
        if (coordinator != coordinators_) {
          SWARMLINE_MARK("phases.seal_voided_by_another_coordinator");
          return contributions_.unreserve_all(sealed.phase);
        }
        settle(sealed, owned);
      });
  return {};
}

void PhaseRunner::settle(const SealedPhase& sealed, const std::set<std::uint32_t>& owned) {
  contributions_.settle(
      sealed.phase, owned,
      [this, sealed, coordinator = coordinators_](Result<std::vector<std::uint32_t>> missing) {
        if (coordinator != coordinators_) return;
        if (!missing) return context_.fail(missing.error());
        missing->empty() ? settled(sealed) : mismatched(sealed.phase, *missing);
      });
}

// What the ledger says is in the sums and is not: all that is left of them is computed again, by
// whoever has room.
void PhaseRunner::mismatched(const Phase& phase, const std::vector<std::uint32_t>& missing) {
  SWARMLINE_MARK("phases.seal_mismatched");
  jobs_.run(
      [this, step = phase.step]() -> Result<void> {
        context_.state.begin(step);
        return {};
      },
      [this, phase, missing, coordinator = coordinators_] {
        contributions_.forget(phase);
        if (coordinator != coordinators_) return;
        wire::SealMismatch mismatch;
        *mismatch.mutable_seat() = to_wire(context_.self);
        *mismatch.mutable_phase() = to_wire(phase);
        for (std::uint32_t index : missing) mismatch.add_missing(index);
        context_.notify_coordinator(make_frame(MessageKind::kSealMismatch, mismatch));
        done_settling();
      });
}

void PhaseRunner::settled(const SealedPhase& sealed) {
  const bool reads = std::ranges::any_of(
      sealed.groups, [this](const SealedGroup& group) { return gradients_.reads_sums(group); });
  if (!reads || !context_.state.needs_collect(sealed.phase.step)) return average(sealed);
  jobs_.run([this, step = sealed.phase.step] { return context_.state.collect(step); },
            [this, sealed, coordinator = coordinators_] {
              if (coordinator == coordinators_) average(sealed);
            });
}

void PhaseRunner::average(const SealedPhase& sealed) {
  gradients_.begin(sealed.phase);
  for (const SealedGroup& group : sealed.groups) gradients_.average(sealed.phase, group);
  done_settling();
}

void PhaseRunner::done_settling() {
  settling_ = false;
  on_settled_();
}

// The stages named take contributions again; whatever they were averaging had the lost seat as a
// member.
Result<void> PhaseRunner::on_reopen(const wire::Reopen& reopen, Version committed) {
  const Phase phase = from_wire(reopen.phase());
  if (phase.kind != PhaseKind::kTrain || phase.step != committed.value ||
      phases_.microbatches(phase) == 0)
    return fail(ErrorCode::kCorrupt, to_string(phase) + " can't be reopened now");
  SWARMLINE_MARK("phases.reopened");
  phases_.reopen(phase, PhaseEpoch{reopen.opening()});
  if (std::ranges::find(reopen.stages(), context_.self.stage.value) != reopen.stages().end()) {
    gradients_.abandon(phase);
    contributions_.reopen(phase);
  }
  jobs_.barrier([this, phase] { activate(phase); });
  return {};
}

// ---- Ends ---------------------------------------------------------------------------------------

Result<void> PhaseRunner::on_retire(const wire::RetirePhase& retire) {
  const Phase phase = from_wire(retire.phase());
  if (phase.kind != PhaseKind::kEval) return fail(ErrorCode::kCorrupt, "a step ends by its seal");
  end(phase);
  return {};
}

void PhaseRunner::end(const Phase& phase) {
  phases_.retire(phase);
  hand_over_.end(phase);
  drop(phase);
  contributions_.retire(phase);
  wire::Reduced unreported;
  flow_.take_account(phase, unreported);
}

void PhaseRunner::begin_at(Version version) {
  if (version.value > 0) phases_.retire({PhaseKind::kTrain, version.value - 1});
}

// ---- Between two coordinators -------------------------------------------------------------------

void PhaseRunner::on_coordinator_lost() {
  ++coordinators_;
  settling_ = false;
}

void PhaseRunner::on_resume(Version heard) {
  opened_before_.clear();
  for (const Phase& phase : phases_.open()) {
    if (phase.kind == PhaseKind::kTrain) {
      gradients_.abandon(phase);
      if (phase.step >= heard.value) opened_before_.insert(phase);
      continue;
    }
    phases_.seal(phase);
    drop(phase);
    contributions_.retire(phase);
  }
  // The oldest version in use is the one before the newest.
  phases_.forget_evals(heard.value > 0 ? heard.value - 1 : 0);
}

void PhaseRunner::list(wire::Holdings& holdings, Version heard) const {
  for (const Phase& phase : phases_.open()) {
    if (phase.kind == PhaseKind::kEval || phase.step < heard.value) continue;
    wire::PhaseHoldings* held = holdings.add_phases();
    *held->mutable_phase() = to_wire(phase);
    held->set_version(phases_.version(phase).value);
    context_.codecs.fill(phase, *held);
    contributions_.list(*held);
  }
}

void PhaseRunner::check_invariants() const {
  SWARMLINE_CHECK(phases_.open_phases() <= kOpenPhasesMax);
  for (const Phase& phase : opened_before_) SWARMLINE_CHECK(phase.kind == PhaseKind::kTrain);
  contributions_.check_invariants();
}

}  // namespace swarmline
