#include "pipeline/coordinator/steps/commit_round.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/check.h"
#include "base/marks.h"
#include "pipeline/protocol/knobs.h"
#include "pipeline/protocol/message_kinds.h"

namespace swarmline {

namespace {
// Attempts that follow each other quickly: most links that break stand again at once.
constexpr std::uint32_t kQuickAttempts = 8;
constexpr std::uint32_t kManyAttempts = 64;
constexpr std::uint32_t kAttemptsMax = 1 << 16;  // fewer than a term has numbers for
}  // namespace

// ---- Seals --------------------------------------------------------------------------------------

void CommitRound::begin(std::uint64_t step, Term term) {
  in_.phases.seal(step);
  first_attempt_ = first_round_attempt(term);
  const std::vector<GroupId> groups = in_.shape.groups.groups();
  std::map<GroupId, ReduceBoard::Members> members, keepers;
  for (const GroupId group : groups) {
    members[group] = members_of(group);
    keepers[group] = keepers_of(group);
  }
  board_.begin(step, std::move(members), std::move(keepers), first_attempt_);
  result_ = in_.alarms.now();
  seals_.fabrics().begin(term);
  send_seals(groups);
}

std::vector<Seat> CommitRound::members_of(GroupId group) const {
  std::vector<Seat> members;
  for (const StageId stage : in_.shape.groups.stages_of(group)) {
    const std::vector<Seat> seats = in_.members.serving_of(stage);
    members.insert(members.end(), seats.begin(), seats.end());
  }
  return members;
}

std::vector<Seat> CommitRound::keepers_of(GroupId group) const {
  std::vector<Seat> keepers;
  for (const StageId stage : in_.shape.groups.stages_of(group)) {
    const std::vector<Seat> ready = in_.shadows.ready_of(stage);
    keepers.insert(keepers.end(), ready.begin(), ready.end());
  }
  return keepers;
}

// Tells each member of these groups what its accumulator must hold and whom it averages with.
void CommitRound::send_seals(const std::vector<GroupId>& groups) {
  seals_.send(board_, phase(), groups);
  sealed_ = in_.alarms.now();
  arm_deadline(knobs().reduce_deadline);
}

// The ledger says it owns what it does not hold: it has emptied its accumulator.
void CommitRound::on_seal_mismatch(const Seat& seat, const wire::SealMismatch& mismatch) {
  if (!board_.active() || from_wire(mismatch.phase()) != phase()) return;
  SWARMLINE_MARK("commit_round.seal_mismatch");
  in_.events.of_peer(seat, "seal_mismatch",
                     fmt::format(" does not hold {} microbatches of {} that it owns",
                                 mismatch.missing_size(), to_string(phase())));
  if (++mismatches_[seat] >= knobs().mismatches_max ||
      in_.ledger.stage_state(phase(), seat.stage) == StageState::kReduced)
    return in_.rulings.lose(seat, "its sums are not what it reported");
  in_.ledger.release_owner(phase(), seat.stage, seat);
  for (const GroupId group : board_.groups())
    if (board_.is_member(group, seat)) board_.give_up(group, board_.attempt(group));
  wake();
}

// ---- Results ------------------------------------------------------------------------------------

bool CommitRound::on_reduced(const wire::Reduced& reduced) {
  if (!board_.report(reduced)) return false;
  result_ = in_.alarms.now();
  const Seat seat = from_wire(reduced.seat());
  const GroupId group{reduced.group()};
  if (in_.shadows.has(seat) && has_result(seat)) in_.shadows.answered(seat);
  const std::vector<Seat> wrong = board_.settle_differences(group);
  for (const Seat& other : wrong) {
    SWARMLINE_MARK("commit_round.different_gradient");
    in_.events.of_peer(
        other, "different_gradient",
        fmt::format(" averaged step {} to other bits than its mates", board_.step() + 1));
  }
  if (!wrong.empty()) send_fetch(group, wrong);
  mark_held(in_.shape.groups.stages_of(group));
  fetch_late(group);
  wake();
  return true;
}

// A stage is reduced once somebody holds each result that its contributions are in.
void CommitRound::mark_held(const std::vector<StageId>& stages) {
  for (const StageId stage : stages) {
    bool held = true;
    for (const GroupId group : in_.shape.groups.groups_of(stage)) held = held && board_.held(group);
    const StageState state = in_.ledger.stage_state(phase(), stage);
    if (held && state == StageState::kClosing) in_.ledger.mark_reduced(phase(), stage);
    if (!held && state == StageState::kReduced) {
      SWARMLINE_MARK("commit_round.result_lost");
      in_.ledger.reduction_lost(phase(), stage);
    }
  }
}

bool CommitRound::has_result(const Seat& seat) const {
  if (!board_.active()) return true;
  for (const GroupId group : in_.shape.groups.groups_of(seat.stage))
    if (!board_.has_reported(group, seat)) return false;
  return true;
}

// ---- Fetching -----------------------------------------------------------------------------------

// The seat under which others reach whoever holds something; none while its host is on its way to
// another seat.
std::optional<Seat> CommitRound::link_seat(const Seat& holder) const {
  const auto member = in_.members.members().find(holder.peer);
  if (member == in_.members.members().end() || member->second.state == MemberState::kLost ||
      member->second.seat.incarnation != holder.incarnation)
    return std::nullopt;
  return member->second.seat;
}

void CommitRound::send_fetch(GroupId group, const std::vector<Seat>& to) {
  seals_.fabrics().on_disturbed(group);
  constexpr std::size_t kHoldersNamedMax = 4;
  wire::FetchReduced fetch;
  *fetch.mutable_phase() = to_wire(phase());
  fetch.set_group(group.value);
  fetch.set_attempt(board_.attempt(group).value);
  fetch.set_digest(board_.digest(group));
  std::vector<wire::GroupMember> holders;
  for (const Seat& seat : board_.holders(group)) {
    const std::optional<Seat> reached = link_seat(seat);
    if (!reached) continue;
    wire::GroupMember& holder = holders.emplace_back();
    *holder.mutable_seat() = to_wire(*reached);
    holder.set_address(in_.members.members().at(reached->peer).address);
    if (seat != *reached) *holder.mutable_shadow() = to_wire(seat);
  }
  const std::size_t named = std::min(holders.size(), kHoldersNamedMax);
  for (const Seat& seat : to) {
    *fetch.mutable_to() = to_wire(seat);
    fetch.clear_holders();
    for (std::size_t i = 0; i < named; ++i)  // others to others
      *fetch.add_holders() = holders[(seat.peer.value + i) % holders.size()];
    in_.outbox.send(seat, make_frame(MessageKind::kFetchReduced, fetch));
  }
}

void CommitRound::fetch_late(GroupId group) {
  if (!board_.has_late(group) || !board_.held(group) ||
      std::ranges::none_of(board_.holders(group),
                           [this](const Seat& seat) { return link_seat(seat).has_value(); }))
    return;
  const std::vector<Seat> late = board_.take_late(group);
  if (late.empty()) return;
  SWARMLINE_MARK("commit_round.late_fetch");
  send_fetch(group, late);
  for (const Seat& seat : late)
    if (in_.shadows.has(seat)) in_.shadows.asked(seat, in_.alarms.now());
}

// Nobody who has not reported counts on its averaging any more.
void CommitRound::fetch_missing(GroupId group) {
  board_.all_late(group);
  fetch_late(group);
}

// ---- Who comes and goes -------------------------------------------------------------------------

void CommitRound::on_seat_lost(const SeatLoss& lost) {
  if (!board_.active()) return;
  std::vector<GroupId> touched;
  for (const GroupId group : board_.groups())
    if (board_.is_member(group, lost.seat)) touched.push_back(group);
  board_.lose(lost.seat);
  for (const GroupId group : touched) {
    mark_held(in_.shape.groups.stages_of(group));
    // Its part may be what the others wait for; those that are done have it all.
    if (board_.held(group)) fetch_missing(group);
  }
  wake();
}

// Of two steps that are open at a time the second may be sealed at the commit that it was waited
// for with; the next commit must not leave it behind.
void CommitRound::add_keeper(const Seat& keeper) {
  if (!board_.active()) return;
  for (const GroupId group : in_.shape.groups.groups_of(keeper.stage)) {
    board_.add_keeper(group, keeper);
    fetch_late(group);
  }
}

void CommitRound::lose_keeper(const Seat& keeper) {
  if (!board_.active()) return;
  std::vector<GroupId> held;
  for (const GroupId group : in_.shape.groups.groups_of(keeper.stage))
    if (board_.has_reported(group, keeper)) held.push_back(group);
  board_.lose(keeper);
  mark_held({keeper.stage});
  // Others may be fetching from it.
  for (const GroupId group : held)
    if (board_.held(group)) fetch_missing(group);
  wake();
}

void CommitRound::seat_keeper(const Seat& keeper, const Seat& seat) {
  if (!board_.active()) return;
  board_.seat_keeper(keeper, seat);
  for (const GroupId group : board_.groups()) fetch_late(group);
  wake();
}

// The commit waits for it: were the round's members lost, nobody else would have the result.
void CommitRound::add_late(const Seat& seat) {
  if (!board_.active()) return;
  for (const GroupId group : in_.shape.groups.groups_of(seat.stage)) {
    if (board_.is_member(group, seat)) continue;
    board_.add_late(group, seat);
    fetch_late(group);
  }
}

// ---- Mending ------------------------------------------------------------------------------------

bool CommitRound::mend() {
  dirty_ = false;
  const std::vector<GroupId> again = complete_again();
  // A stage that is sealed computes no more; while one of them needs what the others compute, all
  // go on.
  if (in_.phases.is_reopened()) return false;
  restart(again);
  if (!board_.done()) return false;
  took_ = in_.alarms.now() - sealed_;
  return true;
}

// Broken groups whose contributions are all there again; the others' stages are reopened.
std::vector<GroupId> CommitRound::complete_again() {
  std::set<StageId> incomplete;
  std::vector<GroupId> again;
  for (const GroupId group : board_.broken()) {
    bool complete = true;
    for (const StageId stage : in_.shape.groups.stages_of(group)) {
      if (in_.ledger.stage_complete(phase(), stage)) continue;
      complete = false;
      incomplete.insert(stage);
    }
    if (complete) again.push_back(group);
  }
  if (in_.phases.reopen(incomplete))
    in_.events.event("reopened", fmt::format("{} lost contributions of {} stages",
                                             to_string(phase()), incomplete.size()));
  if (!incomplete.empty()) in_.leases.wake();
  return again;
}

void CommitRound::restart(const std::vector<GroupId>& groups) {
  if (groups.empty()) return;
  SWARMLINE_MARK("commit_round.averaged_again");
  for (const GroupId group : groups) {
    for (const StageId stage : in_.shape.groups.stages_of(group))
      if (in_.ledger.stage_state(phase(), stage) == StageState::kOpen)
        in_.ledger.begin_close(phase(), stage);
    const std::uint32_t attempts =
        board_.restart(group, members_of(group), keepers_of(group)).value - first_attempt_.value;
    if (attempts >= kAttemptsMax || (attempts >= kManyAttempts && has_outlasted(result_)))
      return in_.rulings.fail_run(
          fmt::format("averaging step {} did not end in {} attempts", board_.step() + 1, attempts));
  }
  send_seals(groups);
}

Duration CommitRound::retry_pause(RoundAttempt attempt) const {
  const std::uint32_t attempts = attempt.value - first_attempt_.value;
  const std::uint32_t doublings = std::min(attempts - std::min(attempts, kQuickAttempts), 16U);
  return std::min(knobs().round_retry_delay * (1 << doublings),
                  std::max(knobs().round_retry_max, knobs().round_retry_delay));
}

// ---- Time ---------------------------------------------------------------------------------------

bool CommitRound::has_outlasted(Instant since) const {
  return in_.alarms.now() - since >= from_seconds(in_.shape.config.net.outlast_seconds);
}

// Of those that have not ended their averaging.
Instant CommitRound::newest_move() const {
  Instant newest{};
  for (const Seat& seat : board_.missing())
    newest = std::max(newest, in_.detector.got_on_at(seat.peer));
  return newest;
}

void CommitRound::arm_deadline(Duration wait) {
  deadline_.arm(wait, [this, step = board_.step()] {
    if (!board_.active() || board_.step() != step) return;
    // Whoever had nothing to do before it was told to average did not stand still.
    const Duration stands = in_.alarms.now() - std::max(sealed_, newest_move());
    const Duration bound = knobs().reduce_deadline + in_.detector.told_within();
    if (stands >= bound) return on_deadline();
    SWARMLINE_MARK("commit_round.gets_on");
    arm_deadline(bound - stands);
  });
}

// Where somebody is done, those that are not are at fault; else nobody knows who is.
void CommitRound::on_deadline() {
  SWARMLINE_MARK("commit_round.deadline");
  const double seconds = to_seconds(knobs().reduce_deadline);
  std::string who;
  for (const Seat& seat : board_.missing()) who += (who.empty() ? "" : ", ") + in_.events.who(seat);
  if (const Instant since = std::max(result_, newest_move()); has_outlasted(since))
    return in_.rulings.fail_run(
        fmt::format("averaging step {} did not end, nor get any further in {:.0f} s; still "
                    "missing: {}",
                    board_.step() + 1, to_seconds(in_.alarms.now() - since), who));
  in_.events.event("averaging_late",
                   fmt::format("step {} has got no further for {:.0f} s; still missing: {}",
                               board_.step() + 1, seconds, who),
                   LogLevel::kWarn);
  arm_deadline(knobs().reduce_deadline);
  for (const GroupId group : board_.groups()) {
    if (board_.held(group)) {
      for (const Seat& seat : board_.missing(group))
        in_.rulings.lose(seat, "it did not end its averaging in time");
    } else {
      board_.give_up(group, board_.attempt(group));
    }
  }
  wake();
}

void CommitRound::end() {
  seals_.fabrics().on_committed();
  deadline_.cancel();
  board_.end();
  links_.clear();
  last_peers_.clear();
  mismatches_.clear();
  dirty_ = false;
}

void CommitRound::check_invariants() const {
  SWARMLINE_CHECK(board_.active() || links_.empty());
  if (!board_.active()) return;
  board_.check_invariants();
  SWARMLINE_CHECK(in_.phases.is_sealed(phase()) && in_.ledger.is_open(phase()));
  for (const GroupId group : board_.groups())
    for (const Seat& seat : board_.members(group))
      SWARMLINE_CHECK_MSG(in_.members.is_current(seat), to_string(seat) + " averages and is over");
  for (const GroupId group : board_.groups())
    for (const StageId stage : in_.shape.groups.stages_of(group)) {
      const auto outside = owners_outside(in_.ledger, phase(), stage, board_.members(group));
      SWARMLINE_CHECK_MSG(outside.empty(),
                          fmt::format("{} owns microbatches of {} and is not in "
                                      "its round",
                                      to_string(outside.front()), to_string(phase())));
    }
}

std::vector<Seat> owners_outside(const Ledger& ledger, const Phase& phase, StageId stage,
                                 const std::vector<Seat>& members) {
  std::vector<Seat> outside;
  // A stage that is open again seals anew; a result that is there needs nobody's sums.
  if (ledger.stage_state(phase, stage) != StageState::kClosing) return outside;
  for (const Seat& owner : ledger.owners(phase, stage))
    if (std::ranges::find(members, owner) == members.end()) outside.push_back(owner);
  return outside;
}

}  // namespace swarmline
