// Close, reduce, commit: rounds that lose members, and what they take with them.
#include <algorithm>
#include <cmath>

#include "base/limits.h"
#include "base/log.h"
#include "engine/collective/slices.h"
#include "engine/optimizer/flat_optimizer.h"
#include "pipeline/coordinator/coordinator_impl.h"

namespace swarmline {

namespace {

constexpr Duration kReduceDeadline = std::chrono::seconds(300);
constexpr int kReduceDeadlinesMax = 3;
// A broken link is averaged over again so much later: it may be its end that is gone.
constexpr Duration kRoundRetryDelay = std::chrono::milliseconds(100);
constexpr int kBrokenLinksMax = 3;
constexpr int kMismatchesMax = 3;
constexpr std::size_t kHoldersNamedMax = 4;  // to one that fetches a result
constexpr std::uint32_t kAttemptsMax = 64;   // at one group's averaging
// Slices begin on whole codec blocks (4096 elements is the largest) and cache lines.
constexpr std::uint64_t kSliceAlignment = 4096;

}  // namespace

// ---- Groups -------------------------------------------------------------------------------------

std::vector<Seat> Coordinator::Impl::members_of(GroupId group) const {
  std::vector<Seat> members;
  for (const StageId stage : shape_.groups.stages_of(group)) {
    const std::vector<Seat> seats = membership_.ready_of(stage);
    members.insert(members.end(), seats.begin(), seats.end());
  }
  return members;
}

wire::ReduceGroup Coordinator::Impl::group_of(GroupId id) const {
  const ReduceBoard::Members& members = board_.members(id);
  wire::ReduceGroup group;
  group.set_group(id.value);
  group.set_attempt(board_.attempt(id).value);
  for (const Seat& seat : members) {
    wire::GroupMember* member = group.add_members();
    *member->mutable_seat() = to_wire(seat);
    member->set_address(membership_.members().at(seat.peer).address);
  }
  const std::vector<double> equal(members.size(), 1.0 / static_cast<double>(members.size()));
  const std::vector<std::uint64_t> bounds =
      slice_bounds(shape_.elements_of(id), equal, kSliceAlignment);
  for (std::size_t i = 1; i < bounds.size(); ++i) group.add_slice_ends(bounds[i]);
  return group;
}

// ---- Seals --------------------------------------------------------------------------------------

void Coordinator::Impl::seal(std::uint64_t step) {
  const Phase phase{PhaseKind::kTrain, step};
  std::map<GroupId, ReduceBoard::Members> members, keepers;
  for (const StageSpec& stage : shape_.stages) ledger_.begin_close(phase, stage.stage);
  const std::vector<GroupId> groups = shape_.groups.groups();
  for (const GroupId group : groups) {
    members[group] = members_of(group);
    keepers[group] = keepers_of(group);
  }
  board_.begin(step, std::move(members), std::move(keepers), first_round_attempt(term_));
  reduce_deadlines_ = 0;
  send_seals(groups);
  sequence_.on_sealed(step);
  advance();
}

// Tells each member of these groups what its accumulator must hold and whom it averages with.
void Coordinator::Impl::send_seals(const std::vector<GroupId>& groups) {
  const Phase phase{PhaseKind::kTrain, board_.step()};
  std::map<Seat, wire::Seal> seals;
  for (const GroupId group : groups) {
    const wire::ReduceGroup round = group_of(group);
    for (const Seat& seat : board_.members(group)) *seals[seat].add_groups() = round;
  }
  for (auto& [seat, seal] : seals) {
    *seal.mutable_phase() = to_wire(phase);
    for (const IndexRange& range : ledger_.owned_by(phase, seat.stage, seat.peer)) {
      wire::Range* owned = seal.add_owned();
      owned->set_first(range.first);
      owned->set_count(range.count);
    }
    notify(seat, make_frame(MessageKind::kSeal, seal));
  }
  arm_reduce_deadline(board_.step());
}

// The ledger says it owns what it does not hold: it has emptied its accumulator.
void Coordinator::Impl::on_seal_mismatch(const Seat& seat, const wire::SealMismatch& mismatch) {
  const Phase phase = from_wire(mismatch.phase());
  if (!board_.active() || phase != Phase{PhaseKind::kTrain, board_.step()}) return;
  event("seal_mismatch", fmt::format("{} does not hold {} microbatches of {} that it owns",
                                     to_string(seat), mismatch.missing_size(), to_string(phase)));
  if (++mismatches_[seat] >= kMismatchesMax ||
      ledger_.stage_state(phase, seat.stage) == StageState::kReduced)
    return fence(seat, "its sums are not what it reported");
  ledger_.release_owner(phase, seat.stage, seat);
  for (const GroupId group : board_.groups())
    if (board_.is_member(group, seat)) board_.give_up(group, board_.attempt(group));
  mend_rounds();
}

// ---- Rounds -------------------------------------------------------------------------------------

void Coordinator::Impl::on_reduced(const wire::Reduced& reduced) {
  if (!board_.report(reduced)) return;
  if (const Seat seat = from_wire(reduced.seat()); shadows_.has(seat)) {
    if (has_result(seat)) shadows_.answered(seat);
  } else {
    stats_.on_reduced(reduced);
    membership_.measured(seat, reduced.busy_ns(), reduced.contributions());
    boundaries_.on_reduced(reduced);
  }
  const std::vector<Seat> wrong = board_.settle_differences(GroupId{reduced.group()});
  if (!wrong.empty()) {
    for (const Seat& seat : wrong)
      event("different_gradient", fmt::format("{} averaged step {} to other bits than its mates",
                                              to_string(seat), board_.step()));
    send_fetch(GroupId{reduced.group()}, wrong);
  }
  mark_held(shape_.groups.stages_of(GroupId{reduced.group()}));
  fetch_late(GroupId{reduced.group()});
  mend_rounds();
}

void Coordinator::Impl::fetch_late(GroupId group) {
  if (!board_.held(group) || std::ranges::none_of(board_.holders(group), [this](const Seat& seat) {
        return link_seat(seat).has_value();
      }))
    return;
  const std::vector<Seat> late = board_.take_late(group);
  if (late.empty()) return;
  send_fetch(group, late);
  for (const Seat& seat : late)
    if (shadows_.has(seat)) shadows_.asked(seat, runtime_.now());
}

void Coordinator::Impl::fetch_missing(GroupId group) {
  board_.all_late(group);
  fetch_late(group);
}

// A stage is reduced once somebody holds each result that its contributions are in.
void Coordinator::Impl::mark_held(const std::vector<StageId>& stages) {
  const Phase phase{PhaseKind::kTrain, board_.step()};
  for (const StageId stage : stages) {
    bool held = true;
    for (const GroupId group : shape_.groups.groups_of(stage)) held = held && board_.held(group);
    const StageState state = ledger_.stage_state(phase, stage);
    if (held && state == StageState::kClosing) ledger_.mark_reduced(phase, stage);
    if (!held && state == StageState::kReduced) ledger_.reduction_lost(phase, stage);
  }
}

void Coordinator::Impl::send_fetch(GroupId group, const std::vector<Seat>& to) {
  wire::FetchReduced fetch;
  *fetch.mutable_phase() = to_wire(Phase{PhaseKind::kTrain, board_.step()});
  fetch.set_group(group.value);
  fetch.set_attempt(board_.attempt(group).value);
  fetch.set_digest(board_.digest(group));
  std::vector<Seat> holders;
  for (const Seat& seat : board_.holders(group))
    if (const std::optional<Seat> reached = link_seat(seat)) holders.push_back(*reached);
  const std::size_t named = std::min(holders.size(), kHoldersNamedMax);
  for (const Seat& seat : to) {
    fetch.clear_holders();
    for (std::size_t i = 0; i < named; ++i) {  // others to others
      const Seat& from = holders[(seat.peer.value + i) % holders.size()];
      wire::GroupMember* holder = fetch.add_holders();
      *holder->mutable_seat() = to_wire(from);
      holder->set_address(membership_.members().at(from.peer).address);
    }
    notify(seat, make_frame(MessageKind::kFetchReduced, fetch));
  }
}

void Coordinator::Impl::after_loss_in_rounds(const Seat& lost) {
  if (!board_.active()) return;
  std::vector<GroupId> touched;
  for (const GroupId group : board_.groups())
    if (board_.is_member(group, lost)) touched.push_back(group);
  board_.lose(lost);
  for (const GroupId group : touched) {
    mark_held(shape_.groups.stages_of(group));
    // Its part may be what the others wait for; those that are done have it all.
    if (board_.held(group)) fetch_missing(group);
  }
  mend_rounds();
}

void Coordinator::Impl::on_round_broken(const wire::RoundBroken& broken) {
  const Seat reporter = from_wire(broken.seat()), beyond = from_wire(broken.beyond());
  if (!board_.active() || from_wire(broken.phase()) != Phase{PhaseKind::kTrain, board_.step()} ||
      !board_.has(GroupId{broken.group()}) ||
      board_.attempt(GroupId{broken.group()}).value != broken.attempt() ||
      !membership_.is_current(beyond))
    return;
  const std::pair<PeerId, PeerId> pair = std::minmax(reporter.peer, beyond.peer);
  runtime_.call_after(kRoundRetryDelay, [weak = weak(), reporter, beyond, pair,
                                         step = board_.step(), group = GroupId{broken.group()},
                                         attempt = RoundAttempt{broken.attempt()}] {
    auto self = weak.lock();
    if (!self) return;
    Impl& impl = **self;
    if (impl.ended_ || !impl.board_.active() || impl.board_.step() != step ||
        impl.board_.attempt(group) != attempt || !impl.membership_.is_current(reporter) ||
        !impl.membership_.is_current(beyond))
      return;
    impl.event("round_broken", fmt::format("the link between {} and {} broke while they averaged",
                                           to_string(reporter), to_string(beyond)));
    if (impl.board_.held(group)) return impl.fetch_missing(group);
    // Two that can't reach each other can't reduce together: one is released.
    if (++impl.broken_links_[pair] >= kBrokenLinksMax)
      return impl.fence(reporter.peer > beyond.peer ? reporter : beyond,
                        fmt::format("lost the link between {} and {} again and again",
                                    to_string(reporter), to_string(beyond)));
    impl.board_.give_up(group, attempt);
    impl.mend_rounds();
  });
}

Frame Coordinator::Impl::reopen_of(const wire::OpenPhase& opened, const std::set<StageId>& stages) {
  wire::Reopen reopen;
  *reopen.mutable_phase() = opened.phase();
  reopen.set_opening(opened.opening());
  for (const StageId stage : stages) reopen.add_stages(stage.value);
  return make_frame(MessageKind::kReopen, reopen);
}

void Coordinator::Impl::mend_rounds() {
  if (!board_.active() || ended_) return;
  const Phase phase{PhaseKind::kTrain, board_.step()};
  std::set<StageId> incomplete;
  std::vector<GroupId> again;
  for (const GroupId group : board_.broken()) {
    bool complete = true;
    for (const StageId stage : shape_.groups.stages_of(group)) {
      if (ledger_.stage_complete(phase, stage)) continue;
      complete = false;
      incomplete.insert(stage);
    }
    if (complete) again.push_back(group);
  }
  if (!std::includes(reopened_.begin(), reopened_.end(), incomplete.begin(), incomplete.end())) {
    wire::OpenPhase& opened = opened_.at(phase);
    opened.set_opening(opened.opening() + 1);
    broadcast(reopen_of(opened, incomplete));
    event("reopened",
          fmt::format("{} lost contributions of {} stages", to_string(phase), incomplete.size()));
  }
  reopened_ = incomplete;
  // A stage that is sealed computes no more; while one of them needs what the others compute, all
  // go on.
  if (!incomplete.empty()) return pump_leases();
  for (const GroupId group : again) {
    for (const StageId stage : shape_.groups.stages_of(group))
      if (ledger_.stage_state(phase, stage) == StageState::kOpen) ledger_.begin_close(phase, stage);
    if (board_.restart(group, members_of(group), keepers_of(group)).value >=
        first_round_attempt(term_).value + kAttemptsMax)
      return fail_run(
          fmt::format("averaging step {} did not end in {} attempts", board_.step(), kAttemptsMax));
  }
  if (!again.empty()) send_seals(again);
  if (board_.done()) commit();
}

void Coordinator::Impl::arm_reduce_deadline(std::uint64_t step) {
  runtime_.cancel(reduce_deadline_);
  reduce_deadline_ = runtime_.call_after(kReduceDeadline, [weak = weak(), step] {
    auto self = weak.lock();
    if (!self || !(*self)->board_.active() || (*self)->board_.step() != step) return;
    if ((*self)->detector_.was_stopped((*self)->runtime_.now()))
      return (*self)->arm_reduce_deadline(step);
    (*self)->on_reduce_deadline();
  });
}

// Where somebody is done, those that are not are at fault; else nobody knows who is.
void Coordinator::Impl::on_reduce_deadline() {
  const std::uint64_t step = board_.step();
  std::string who;
  for (const Seat& seat : board_.missing()) who += (who.empty() ? "" : ", ") + to_string(seat);
  if (++reduce_deadlines_ >= kReduceDeadlinesMax)
    return fail_run(
        fmt::format("averaging step {} did not end in {} times {:.0f} s; still "
                    "missing: {}",
                    step, reduce_deadlines_, to_seconds(kReduceDeadline), who));
  event("averaging_late", fmt::format("step {} after {:.0f} s; still missing: {}", step,
                                      to_seconds(kReduceDeadline), who));
  arm_reduce_deadline(step);
  std::vector<Seat> late;
  for (const GroupId group : board_.groups()) {
    if (board_.held(group)) {
      for (const Seat& seat : board_.missing(group)) late.push_back(seat);
    } else if (ledger_.is_open({PhaseKind::kTrain, step})) {
      board_.give_up(group, board_.attempt(group));
    }
  }
  for (const Seat& seat : late) fence(seat, "it did not end its averaging in time");
  mend_rounds();
}

// ---- Commit -------------------------------------------------------------------------------------

void Coordinator::Impl::commit() {
  runtime_.cancel(reduce_deadline_);
  const std::uint64_t step = board_.step();
  const Phase phase{PhaseKind::kTrain, step};
  const double norm = std::sqrt(board_.sum_of_squares());
  const RunConfig& config = options_.config;
  CommitRecord record;
  record.step = step;
  record.version = step + 1;
  record.tokens = config.tokens_per_step();
  record.loss = ledger_.loss_sum(phase) / static_cast<double>(record.tokens);
  record.gradient_norm = norm;
  record.skipped = !std::isfinite(norm);
  if (record.skipped && config.run.on_nonfinite == "stop")
    return fail_run(fmt::format(
        "the gradient of step {} is not finite (loss {}); lower the learning rate, or set "
        "run.on_nonfinite = \"skip\" to pass over such steps",
        step, record.loss));
  StepScalars scalars;
  if (!record.skipped)
    scalars = step_scalars(config.optimizer, step, config.run.steps, updates_++, norm);
  record.era = era_.value;
  record.updates = updates_;
  record.clip_scale = scalars.clip_scale;
  record.learning_rate = scalars.learning_rate;
  for (const GroupResult& group : board_.results()) record.group_digests.push_back(group.digest);
  // Durable before anybody hears of it.
  if (auto kept = journal_.record_commit(record); !kept) return journal_failed(kept.error());

  // Where somebody was not in the round, the others keep the result for it.
  std::set<StageId> keepers = stages_to_keep_for();
  for (const auto& [peer, session] : sessions_.seated()) {
    const Seat& seat = session->seat;
    if (!serves(seat) && !follows(seat)) continue;
    for (const GroupId group : shape_.groups.groups_of(seat.stage))
      if (!board_.is_member(group, seat)) keepers.insert(seat.stage);
  }
  wire::Commit commit;
  commit.set_step(step);
  commit.set_skipped(record.skipped);
  for (const GroupResult& group : board_.results()) {
    wire::GroupDigest* digest = commit.add_groups();
    digest->set_group(group.group.value);
    digest->set_attempt(group.attempt.value);
    digest->set_digest(group.digest);
  }
  commit.set_learning_rate(scalars.learning_rate);
  commit.set_clip_scale(scalars.clip_scale);
  commit.set_bias_correction1(scalars.bias_correction1);
  commit.set_bias_correction2(scalars.bias_correction2);
  commit.set_loss(record.loss);
  for (const auto& [peer, session] : sessions_.seated()) {
    const Seat& seat = session->seat;
    if (!serves(seat) && !follows(seat)) continue;
    commit.set_keep(keepers.contains(seat.stage));
    session->channel->notify(make_frame(MessageKind::kCommit, commit));
  }
  tell_shadows(std::move(commit), keepers);

  std::vector<PeerContributions> shares;
  for (const auto& [peer, member] : membership_.members()) {
    std::uint32_t owned = 0;
    for (const IndexRange& range : ledger_.owned_by(phase, member.seat.stage, peer))
      owned += range.count;
    membership_.contributed(peer, owned);
    if (owned > 0) detector_.contributed(peer);
    shares.push_back({.peer = peer, .stage = member.seat.stage, .microbatches = owned});
  }
  const std::uint64_t reduce_bytes = board_.reduce_bytes();
  reopened_.clear();
  broken_links_.clear();
  mismatches_.clear();
  ledger_.commit(phase);
  opened_.erase(phase);
  board_.end();
  std::erase_if(failures_, [&](const auto& entry) { return entry.first.phase == phase; });
  std::erase_if(backed_up_, [&](const MicrobatchId& id) { return id.phase == phase; });
  sequence_.on_committed(step);
  again_.times = 0;
  stats_.on_commit(record, reduce_bytes, runtime_.now());
  choose_codecs();
  if (ended_ || state_ == State::kFailed) return;
  if (options_.log_line)
    options_.log_line(
        stats_.log_line(record, shares, boundaries_, reduce_bytes, runtime_.wall_seconds()));
  const std::uint64_t every = config.checkpoint.every_steps;
  if (every > 0 && record.version % every == 0 && record.version < config.run.steps)
    begin_checkpoint(record.version, false);
  for (const Phase& open : ledger_.open_phases()) after_progress(open);
  balance();
  advance();
}

// Phases that open from now on travel so; those that are open keep what they were opened with.
void Coordinator::Impl::choose_codecs() {
  std::vector<std::uint32_t> peers;
  for (const StageSpec& stage : shape_.stages)
    peers.push_back(static_cast<std::uint32_t>(membership_.ready_of(stage.stage).size()));
  const std::vector<std::string> changes = boundaries_.on_commit(peers);
  if (changes.empty()) return;
  if (auto kept = journal_.record_codecs(boundaries_.to_text()); !kept)
    return journal_failed(kept.error());
  for (const std::string& change : changes) event("codec", change);
}

void Coordinator::Impl::on_stepped(const wire::Stepped& stepped) {
  const Seat seat = from_wire(stepped.seat());
  if (stepped.version() == 0 || stepped.version() > sequence_.committed())
    return fail_run(fmt::format("{} says it applied step {}, which is not committed",
                                to_string(seat), stepped.version()));
  membership_.at(seat.peer).stepped =
      std::max(membership_.at(seat.peer).stepped, stepped.version());
  audit_.say(seat, stepped.version(), stepped.state_digest());
  compare_states(seat.stage, stepped.version());
  if (audit_.has_followers()) seat_followers(seat.stage);
  check_shadows(seat.stage);
  if (sequence_.finished()) advance();
}

// Replicas must hold the same bits. A minority is fenced and comes back with the others' state; of
// two that differ nobody knows which is right: the run goes back.
void Coordinator::Impl::compare_states(StageId stage, std::uint64_t version) {
  const ReplicaAudit::Verdict verdict =
      audit_.compare(stage, version, membership_.ready_of(stage).size());
  using Kind = ReplicaAudit::Verdict::Kind;
  if (verdict.kind == Kind::kMinority)
    for (const Seat& seat : verdict.wrong)
      fence(seat, fmt::format("it holds other parameters after step {} than most of its stage",
                              version - 1));
  if (verdict.kind != Kind::kTie || settled_by_shadows(stage, version, verdict.votes)) return;
  begin_from_checkpoint(fmt::format("{} and {} hold different parameters after step {}",
                                    to_string(verdict.one), to_string(verdict.other), version - 1));
}

}  // namespace swarmline
