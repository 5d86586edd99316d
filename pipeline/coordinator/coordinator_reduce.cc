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

std::vector<StageId> Coordinator::Impl::stages_of(std::uint32_t group) const {
  const auto stages = static_cast<std::uint16_t>(stages_.size());
  if (group < stages) return {StageId{static_cast<std::uint16_t>(group)}};
  return {StageId{0}, StageId{static_cast<std::uint16_t>(stages - 1)}};
}

std::vector<Seat> Coordinator::Impl::members_of(std::uint32_t group) const {
  std::vector<Seat> members;
  for (const StageId stage : stages_of(group)) {
    const std::vector<Seat> seats = membership_.ready_of(stage);
    members.insert(members.end(), seats.begin(), seats.end());
  }
  return members;
}

std::uint64_t Coordinator::Impl::elements_of(std::uint32_t group) const {
  const ParameterLayout& layout = layouts_[group < stages_.size() ? group : 0];
  return group < stages_.size() ? layout.tied_offset : layout.elements - layout.tied_offset;
}

wire::ReduceGroup Coordinator::Impl::group_of(std::uint32_t id, const std::vector<Seat>& members,
                                              std::uint64_t elements, std::uint32_t attempt) const {
  wire::ReduceGroup group;
  group.set_group(id);
  group.set_attempt(attempt);
  for (const Seat& seat : members) {
    wire::GroupMember* member = group.add_members();
    *member->mutable_seat() = to_wire(seat);
    member->set_address(membership_.members().at(seat.peer).address);
  }
  const std::vector<double> equal(members.size(), 1.0 / static_cast<double>(members.size()));
  const std::vector<std::uint64_t> bounds = slice_bounds(elements, equal, kSliceAlignment);
  for (std::size_t i = 1; i < bounds.size(); ++i) group.add_slice_ends(bounds[i]);
  return group;
}

// ---- Seals --------------------------------------------------------------------------------------

void Coordinator::Impl::seal(std::uint64_t step) {
  const Phase phase{PhaseKind::kTrain, step};
  const auto stage_count = static_cast<std::uint16_t>(stages_.size());
  std::map<std::uint32_t, ReduceBoard::Members> members;
  for (std::uint16_t s = 0; s < stage_count; ++s) {
    ledger_.begin_close(phase, StageId{s});
    members[s] = members_of(s);
  }
  // An embedding that two stages share is a group of its own.
  if (stage_count > 1 && layouts_[0].has_tied()) members[stage_count] = members_of(stage_count);
  std::vector<std::uint32_t> groups;
  std::map<std::uint32_t, ReduceBoard::Members> keepers;
  for (const auto& [group, seats] : members) {
    groups.push_back(group);
    keepers[group] = keepers_of(group);
  }
  board_.begin(step, std::move(members), std::move(keepers), first_round_attempt());
  reduce_deadlines_ = 0;
  send_seals(groups);
  sequence_.on_sealed(step);
  advance();
}

// Tells each member of these groups what its accumulator must hold and whom it averages with.
void Coordinator::Impl::send_seals(const std::vector<std::uint32_t>& groups) {
  const Phase phase{PhaseKind::kTrain, board_.step()};
  std::map<Seat, wire::Seal> seals;
  for (std::uint32_t group : groups) {
    const wire::ReduceGroup round =
        group_of(group, board_.members(group), elements_of(group), board_.attempt(group));
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
  for (std::uint32_t group = 0; group <= stages_.size(); ++group)
    if (board_.has(group)) {
      const auto& round = board_.members(group);
      if (std::find(round.begin(), round.end(), seat) != round.end())
        board_.give_up(group, board_.attempt(group));
    }
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
  const std::vector<Seat> wrong = board_.settle_differences(reduced.group());
  if (!wrong.empty()) {
    for (const Seat& seat : wrong)
      event("different_gradient", fmt::format("{} averaged step {} to other bits than its mates",
                                              to_string(seat), board_.step()));
    send_fetch(reduced.group(), wrong);
  }
  mark_held(stages_of(reduced.group()));
  fetch_late(reduced.group());
  mend_rounds();
}

void Coordinator::Impl::fetch_late(std::uint32_t group) {
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

void Coordinator::Impl::fetch_missing(std::uint32_t group) {
  board_.all_late(group);
  fetch_late(group);
}

bool Coordinator::Impl::is_in(std::uint32_t group, StageId stage) const {
  const std::vector<StageId> stages = stages_of(group);
  return std::find(stages.begin(), stages.end(), stage) != stages.end();
}

// A stage is reduced once somebody holds each result that its contributions are in.
void Coordinator::Impl::mark_held(const std::vector<StageId>& stages) {
  const Phase phase{PhaseKind::kTrain, board_.step()};
  for (const StageId stage : stages) {
    bool held = true;
    for (std::uint32_t group = 0; group <= stages_.size(); ++group) {
      if (board_.has(group) && is_in(group, stage)) held = held && board_.held(group);
    }
    const StageState state = ledger_.stage_state(phase, stage);
    if (held && state == StageState::kClosing) ledger_.mark_reduced(phase, stage);
    if (!held && state == StageState::kReduced) ledger_.reduction_lost(phase, stage);
  }
}

void Coordinator::Impl::send_fetch(std::uint32_t group, const std::vector<Seat>& to) {
  wire::FetchReduced fetch;
  *fetch.mutable_phase() = to_wire(Phase{PhaseKind::kTrain, board_.step()});
  fetch.set_group(group);
  fetch.set_attempt(board_.attempt(group));
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
  std::vector<std::uint32_t> touched;
  for (std::uint32_t group = 0; group <= stages_.size(); ++group) {
    if (!board_.has(group)) continue;
    const ReduceBoard::Members& round = board_.members(group);
    if (std::find(round.begin(), round.end(), lost) != round.end()) touched.push_back(group);
  }
  board_.lose(lost);
  for (std::uint32_t group : touched) {
    mark_held(stages_of(group));
    // Its part may be what the others wait for; those that are done have it all.
    if (board_.held(group)) fetch_missing(group);
  }
  mend_rounds();
}

void Coordinator::Impl::on_round_broken(const wire::RoundBroken& broken) {
  const Seat reporter = from_wire(broken.seat()), beyond = from_wire(broken.beyond());
  if (!board_.active() || from_wire(broken.phase()) != Phase{PhaseKind::kTrain, board_.step()} ||
      !board_.has(broken.group()) || board_.attempt(broken.group()) != broken.attempt() ||
      !membership_.is_current(beyond))
    return;
  const std::pair<PeerId, PeerId> pair = std::minmax(reporter.peer, beyond.peer);
  runtime_.call_after(kRoundRetryDelay, [weak = weak(), reporter, beyond, pair,
                                         step = board_.step(), group = broken.group(),
                                         attempt = broken.attempt()] {
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
  std::vector<std::uint32_t> again;
  for (std::uint32_t group : board_.broken()) {
    bool complete = true;
    for (const StageId stage : stages_of(group)) {
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
  for (std::uint32_t group : again) {
    for (const StageId stage : stages_of(group))
      if (ledger_.stage_state(phase, stage) == StageState::kOpen) ledger_.begin_close(phase, stage);
    if (board_.restart(group, members_of(group), keepers_of(group)) >=
        first_round_attempt() + kAttemptsMax)
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
    if ((*self)->was_stopped()) return (*self)->arm_reduce_deadline(step);
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
  for (std::uint32_t group = 0; group <= stages_.size(); ++group) {
    if (!board_.has(group)) continue;
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
  for (const wire::GroupDigest& group : board_.digests())
    record.group_digests.push_back(group.digest());
  // Durable before anybody hears of it.
  if (auto kept = journal_.record_commit(record); !kept) return journal_failed(kept.error());

  // Where somebody was not in the round, the others keep the result for it.
  std::set<StageId> keepers = stages_to_keep_for();
  for (const auto& [peer, session] : peers_) {
    const Seat& seat = session->seat;
    if (!serves(seat) && !follows(seat)) continue;
    for (std::uint32_t group = 0; group <= stages_.size(); ++group) {
      if (!board_.has(group) || !is_in(group, seat.stage)) continue;
      const ReduceBoard::Members& round = board_.members(group);
      if (std::find(round.begin(), round.end(), seat) == round.end()) keepers.insert(seat.stage);
    }
  }
  wire::Commit commit;
  commit.set_step(step);
  commit.set_skipped(record.skipped);
  for (const wire::GroupDigest& group : board_.digests()) *commit.add_groups() = group;
  commit.set_learning_rate(scalars.learning_rate);
  commit.set_clip_scale(scalars.clip_scale);
  commit.set_bias_correction1(scalars.bias_correction1);
  commit.set_bias_correction2(scalars.bias_correction2);
  commit.set_loss(record.loss);
  for (const auto& [peer, session] : peers_) {
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
  for (const StageSpec& stage : stages_)
    peers.push_back(static_cast<std::uint32_t>(membership_.ready_of(stage.stage).size()));
  const std::vector<std::string> changes = boundaries_.on_commit(peers);
  if (changes.empty()) return;
  if (auto kept = journal_.put_meta("codecs", boundaries_.to_text()); !kept)
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
  state_digests_[{seat.stage, stepped.version()}][seat] = stepped.state_digest();
  compare_states(seat.stage, stepped.version());
  std::erase_if(state_digests_,
                [&](const auto& entry) { return entry.first.second + 2 < stepped.version(); });
  if (!followers_ready_.empty()) seat_followers(seat.stage);
  check_shadows(seat.stage);
  if (sequence_.finished()) advance();
}

// Replicas must hold the same bits. A minority is fenced and comes back with the others' state; of
// two that differ nobody knows which is right: the run goes back.
void Coordinator::Impl::compare_states(StageId stage, std::uint64_t version) {
  const std::map<Seat, std::uint64_t>& said = state_digests_[{stage, version}];
  std::map<std::uint64_t, std::vector<Seat>> votes;
  for (const auto& [seat, digest] : said) votes[digest].push_back(seat);
  if (votes.size() < 2) return;
  const std::vector<Seat> all = membership_.ready_of(stage);
  const auto most = std::max_element(votes.begin(), votes.end(), [](const auto& a, const auto& b) {
    return a.second.size() < b.second.size();
  });
  if (2 * most->second.size() > all.size()) {
    std::vector<Seat> wrong;
    for (const auto& [digest, seats] : votes)
      if (digest != most->first) wrong.insert(wrong.end(), seats.begin(), seats.end());
    for (const Seat& seat : wrong)
      fence(seat, fmt::format("it holds other parameters after step {} than most of its stage",
                              version - 1));
    return;
  }
  if (said.size() < all.size()) return;  // the others may tell which is right
  if (settled_by_shadows(stage, version, votes)) return;
  const auto other = votes.begin()->first == most->first ? std::next(votes.begin()) : votes.begin();
  begin_from_checkpoint(fmt::format("{} and {} hold different parameters after step {}",
                                    to_string(most->second.front()),
                                    to_string(other->second.front()), version - 1));
}

}  // namespace swarmline
