// Shadows: who follows a stage beside the one it serves, what it keeps of each step, and how it
// takes the stage over when nobody is left there.
#include <algorithm>
#include <utility>

#include "base/log.h"
#include "pipeline/coordinator/coordinator_impl.h"

namespace swarmline {

namespace {
// Commits said again to a peer that comes back with a state of its own; as long as members keep
// the gradients.
constexpr std::size_t kRecentCommitsMax = 4;
// A shadow that has all it needs holds the committed version so soon; sent to the stage, it comes
// back so soon; it builds the stage in so long.
constexpr Duration kCatchUpTime = std::chrono::seconds(30);
constexpr Duration kReturnTime = std::chrono::seconds(5);
constexpr Duration kBuildTime = std::chrono::seconds(120);
}  // namespace

// ---- One shadow's life --------------------------------------------------------------------------

void Coordinator::Impl::add_shadow(const Seat& host, StageId stage, const std::string& why) {
  const Seat shadow{host.peer, stage, host.incarnation};
  if (shadows_.has(shadow) || host.stage == stage) return;
  shadows_.add(shadow, host.stage, runtime_.now());
  event("shadow_added", fmt::format("{} follows stage {}: {}", to_string(host), stage.value, why));
  wire::Follow follow;
  follow.set_stage(stage.value);
  sessions_.of(host.peer)->channel->notify(make_frame(MessageKind::kFollow, follow));
}

void Coordinator::Impl::drop_shadow(const Seat& shadow, const std::string& kind,
                                    const std::string& why) {
  event(kind, fmt::format("peer {} follows stage {} no more: {}", shadow.peer.value,
                          shadow.stage.value, why));
  wire::Follow follow;
  follow.set_stage(shadow.stage.value);
  follow.set_drop(true);
  if (const SessionPtr host = sessions_.of(shadow.peer))
    host->channel->notify(make_frame(MessageKind::kFollow, follow));
  forget_shadow(shadow);
  balancer_.seats_changed();
  mend_rounds();
  freeze_states();
}

void Coordinator::Impl::forget_shadow(const Seat& shadow) {
  shadows_.remove(shadow);
  desk_.lost(shadow);
  lose_keeper(shadow);
}

void Coordinator::Impl::lose_keeper(const Seat& keeper) {
  if (!board_.active()) return;
  std::vector<GroupId> held;
  for (const GroupId group : shape_.groups.groups_of(keeper.stage))
    if (board_.has_reported(group, keeper)) held.push_back(group);
  board_.lose(keeper);
  mark_held({keeper.stage});
  // Others may be fetching from it.
  for (const GroupId group : held)
    if (board_.held(group)) fetch_missing(group);
}

// Its host is lost, or moves: of what it follows only the state that it moves to is kept, for as
// long as nobody else has it.
void Coordinator::Impl::lose_shadows_of(const Seat& host) {
  for (const Seat& shadow : shadows_.hosted_by(host.peer)) {
    const auto emptied = emptied_.find(shadow.stage);
    if (emptied != emptied_.end() && emptied->second.heir == shadow) {
      shadows_.remove(shadow);
    } else {
      forget_shadow(shadow);
    }
  }
}

bool Coordinator::Impl::on_shadow_message(const SessionPtr& session, const Frame& frame) {
  if (shadows_.empty()) return false;
  const auto of_shadow = [&](const auto& parsed) {
    if (!parsed) return false;
    const Seat seat = from_wire(parsed->seat());
    return seat.peer == session->seat.peer && seat != session->seat && shadows_.has(seat);
  };
  switch (kind_of(frame)) {
    case MessageKind::kWantState: {
      const auto want = parse<wire::WantState>(frame);
      if (!of_shadow(want)) return false;
      const Seat shadow = from_wire(want->seat());
      lose_keeper(shadow);
      shadows_.restart(shadow, runtime_.now());
      desk_.lost(shadow);
      desk_.want(shadow);
      freeze_states();
      mend_rounds();
      return true;
    }
    case MessageKind::kReady: {
      const auto ready = parse<wire::Ready>(frame);
      if (!of_shadow(ready)) return false;
      on_shadow_ready(from_wire(ready->seat()), *ready);
      return true;
    }
    case MessageKind::kReduced: {
      const auto reduced = parse<wire::Reduced>(frame);
      if (!of_shadow(reduced)) return false;
      on_reduced(*reduced);
      return true;
    }
    case MessageKind::kGoodbye: {
      const auto goodbye = parse<wire::Goodbye>(frame);
      if (!of_shadow(goodbye)) return false;
      const Seat shadow = from_wire(goodbye->seat());
      shadows_.rest(shadow.peer, runtime_.now());
      drop_shadow(shadow, "shadow_demoted", goodbye->reason());
      take_over();
      return true;
    }
    default:
      return false;
  }
}

void Coordinator::Impl::on_shadow_ready(const Seat& shadow, const wire::Ready& ready) {
  if (ready.version() > sequence_.committed()) return;
  shadows_.said(shadow, ready.version(), ready.state_digest(), runtime_.now());
  check_shadows(shadow.stage);
  if (shadows_.has(shadow)) compare_states(shadow.stage, ready.version());
  take_over();
}

// One that has the bits that the members have is ready; one that has others ends.
void Coordinator::Impl::check_shadows(StageId stage) {
  for (const Seat& seat : shadows_.of_stage(stage)) {
    if (!shadows_.has(seat)) continue;
    const ShadowDesk::Shadow shadow = shadows_.all().at(seat);
    if (shadow.version == 0 || !audit_.knows(stage, shadow.version)) continue;
    if (!audit_.has_said(stage, shadow.version, shadow.digest)) {
      drop_shadow(seat, "shadow_demoted", "it holds other parameters than the stage");
      continue;
    }
    if (shadow.ready) continue;
    shadows_.confirm(seat, runtime_.now());
    desk_.seated(seat);
    event("shadow_ready", fmt::format("peer {} holds version {} of stage {}", seat.peer.value,
                                      shadow.version, stage.value));
    balancer_.seats_changed();
    freeze_states();  // others may have waited for the next frozen state
  }
}

bool Coordinator::Impl::settled_by_shadows(
    StageId stage, std::uint64_t version, const std::map<std::uint64_t, std::vector<Seat>>& votes) {
  bool may_tell = false;
  for (const Seat& seat : shadows_.ready_of(stage)) {
    const ShadowDesk::Shadow& shadow = shadows_.all().at(seat);
    may_tell = may_tell || shadow.version < version;
    if (shadow.version != version || !votes.contains(shadow.digest)) continue;
    const std::uint64_t right = shadow.digest;
    for (const auto& [digest, seats] : votes)
      for (const Seat& wrong : seats)
        if (digest != right)
          fence(wrong,
                fmt::format("it holds other parameters after step {} than its stage's shadow",
                            version - 1));
    return true;
  }
  return may_tell;
}

void Coordinator::Impl::watch_shadows(Instant now) {
  for (const Seat& seat : shadows_.late(now)) {
    // Nobody is there to fetch from.
    if (ended_ || !shadows_.has(seat) || emptied_.contains(seat.stage)) continue;
    shadows_.rest(seat.peer, now);
    drop_shadow(seat, "shadow_demoted", "it does not keep up");
  }
  const std::map<StageId, Emptied> emptied = emptied_;
  for (const auto& [stage, was] : emptied) {
    const auto found = emptied_.find(stage);
    if (ended_ || found == emptied_.end() || now <= found->second.deadline) continue;
    if (was.seat && membership_.is_current(*was.seat)) {
      fence(*was.seat, "it did not take its stage over in time");
    } else if (was.heir) {
      disinherit(stage);
      mend_rounds();
    } else {
      for (const Seat& seat : shadows_.ready_of(stage))
        drop_shadow(seat, "shadow_demoted", "it does not catch up with the last commit");
    }
    take_over();
  }
}

std::vector<Seat> Coordinator::Impl::shadow_hosts(StageId stage) const {
  std::vector<Seat> hosts;
  for (const Seat& shadow : shadows_.ready_of(stage))
    if (const std::optional<Seat> host = link_seat(shadow)) hosts.push_back(*host);
  return hosts;
}

// ---- Each step ----------------------------------------------------------------------------------

std::vector<Seat> Coordinator::Impl::keepers_of(GroupId group) const {
  std::vector<Seat> keepers;
  for (const StageId stage : shape_.groups.stages_of(group)) {
    const std::vector<Seat> ready = shadows_.ready_of(stage);
    keepers.insert(keepers.end(), ready.begin(), ready.end());
  }
  return keepers;
}

bool Coordinator::Impl::has_result(const Seat& seat) const {
  if (!board_.active()) return true;
  for (const GroupId group : shape_.groups.groups_of(seat.stage))
    if (!board_.has_reported(group, seat)) return false;
  return true;
}

// The seat under which others reach whoever holds something; none while its host is on its way to
// another seat.
std::optional<Seat> Coordinator::Impl::link_seat(const Seat& holder) const {
  const auto member = membership_.members().find(holder.peer);
  if (member == membership_.members().end() || member->second.state == MemberState::kLost ||
      member->second.seat.incarnation != holder.incarnation)
    return std::nullopt;
  return member->second.seat;
}

// Stages where somebody has yet to fetch what is committed now, besides members.
std::set<StageId> Coordinator::Impl::stages_to_keep_for() const {
  std::set<StageId> stages;
  for (const auto& [seat, shadow] : shadows_.all())
    if (shadow.follows && !has_result(seat)) stages.insert(seat.stage);
  for (const auto& [peer, member] : membership_.members())
    if (member.state == MemberState::kLost && member.moves_to &&
        runtime_.now() - member.moves_since < BalanceDesk::kMoveTime)
      stages.insert(*member.moves_to);
  return stages;
}

void Coordinator::Impl::tell_shadows(wire::Commit commit, const std::set<StageId>& keepers) {
  for (const auto& [seat, shadow] : std::map(shadows_.all())) {
    if (!shadow.follows) continue;
    commit.set_keep(keepers.contains(seat.stage));
    notify(seat, make_frame(MessageKind::kCommit, commit));
    shadows_.committed(seat, commit.step() + 1, commit.skipped() || has_result(seat),
                       runtime_.now());
  }
  recent_commits_.push_back(std::move(commit));
  if (recent_commits_.size() > kRecentCommitsMax) recent_commits_.pop_front();
}

// ---- Taking over --------------------------------------------------------------------------------

bool Coordinator::Impl::awaits_heir(const Seat& lost, const std::string& why, Goes how) {
  const auto known = emptied_.find(lost.stage);
  if (known != emptied_.end() && known->second.seat != lost) return true;  // a joiner of the stage
  if (known != emptied_.end()) disinherit(lost.stage);
  if (!heir_of(lost.stage)) {
    emptied_.erase(lost.stage);
    return false;
  }
  if (known == emptied_.end())
    emptied_[lost.stage] = {.last = lost, .why = why, .how = how, .heir = {}, .seat = {}};
  emptied_.at(lost.stage).deadline = runtime_.now() + kCatchUpTime;
  return true;
}

std::optional<Seat> Coordinator::Impl::heir_of(StageId stage) const {
  return shadows_.heir(stage, sequence_.committed(),
                       [this](StageId served) { return membership_.ready_of(served).size(); });
}

// Whoever was to take it over does not come.
void Coordinator::Impl::disinherit(StageId stage) {
  Emptied& emptied = emptied_.at(stage);
  if (emptied.heir) lose_keeper(*emptied.heir);
  emptied.heir.reset();
  emptied.seat.reset();
}

// For each stage that nobody serves any more a shadow's host leaves its own stage: it counts as
// lost there.
void Coordinator::Impl::take_over() {
  std::vector<StageId> stages;
  for (const auto& [stage, emptied] : emptied_) stages.push_back(stage);
  for (const StageId stage : stages) {
    const auto found = emptied_.find(stage);
    if (ended_ || found == emptied_.end() || found->second.heir) continue;
    Emptied& emptied = found->second;
    const std::optional<Seat> heir = heir_of(stage);
    if (!heir) {
      const Emptied gone = std::exchange(emptied, {});
      emptied_.erase(stage);
      return stage_is_gone(gone.last, gone.why, gone.how);
    }
    const ShadowDesk::Shadow& shadow = shadows_.all().at(*heir);
    if (shadow.version < sequence_.committed()) continue;  // it says so when it does
    emptied.heir = heir;
    emptied.digest = shadow.digest;
    emptied.deadline = runtime_.now() + kReturnTime;
    Member& host = membership_.at(heir->peer);
    host.moves_to = stage;
    host.moves_since = runtime_.now();
    event("take_over", fmt::format("{} leaves for stage {}, which it follows", to_string(host.seat),
                                   stage.value));
    const Seat leaves = host.seat;
    fence(leaves, fmt::format("it takes over stage {}", stage.value), Goes::kMoves);
  }
}

// Whether the one that goes can begin at the stage it is sent to with what its shadow holds.
bool Coordinator::Impl::takes_followed(const Member& member) const {
  if (!member.moves_to) return false;
  const Seat shadow{member.seat.peer, *member.moves_to, member.seat.incarnation};
  return shadows_.has(shadow) && shadows_.all().at(shadow).ready &&
         shadows_.all().at(shadow).version == sequence_.committed();
}

// It will be able to in a moment.
bool Coordinator::Impl::catches_up(const Member& member) const {
  if (!member.moves_to || takes_followed(member)) return false;
  const Seat shadow{member.seat.peer, *member.moves_to, member.seat.incarnation};
  return shadows_.has(shadow) && shadows_.all().at(shadow).ready;
}

bool Coordinator::Impl::is_heir(const wire::Hello& hello) const {
  const Member* before = membership_.former(hello);
  return before != nullptr && before->moves_to && emptied_.contains(*before->moves_to) &&
         emptied_.at(*before->moves_to).heir ==
             Seat{before->seat.peer, *before->moves_to, before->seat.incarnation};
}

// It comes with a whole state; commits since then can be told again.
bool Coordinator::Impl::keeps_followed(const wire::Hello& hello, const Seat& seat) const {
  const std::uint64_t version = hello.followed().version(), committed = sequence_.committed();
  return hello.has_followed() && hello.followed().stage() == seat.stage.value && version > 0 &&
         version <= committed && committed - version <= recent_commits_.size() &&
         state_ != State::kWaiting;
}

void Coordinator::Impl::follow_on(const Seat& seat, std::uint64_t version) {
  Member& member = membership_.at(seat.peer);
  member.state = MemberState::kFollowing;
  if (const auto emptied = emptied_.find(seat.stage); emptied != emptied_.end() &&
                                                      emptied->second.heir &&
                                                      emptied->second.heir->peer == seat.peer) {
    emptied->second.seat = seat;
    emptied->second.deadline = runtime_.now() + kBuildTime;
  }
  notify(seat, make_frame(MessageKind::kMembership, membership_.view_for(seat)));
  for (const wire::Commit& commit : recent_commits_)
    if (commit.step() >= version) notify(seat, make_frame(MessageKind::kCommit, commit));
}

// The stage has nobody who could say whether it is right: its digest was heard while it followed.
bool Coordinator::Impl::seat_heir(const Seat& seat, const wire::Ready& ready) {
  const auto found = emptied_.find(seat.stage);
  if (found == emptied_.end() || found->second.seat != seat) return false;
  const Emptied emptied = found->second;
  const std::uint64_t version = sequence_.committed();
  if (ready.version() != version || ready.state_digest() != emptied.digest) {
    fence(seat, "the state it followed is not the committed one");
    return true;
  }
  emptied_.erase(found);
  audit_.say(seat, version, emptied.digest);
  if (board_.active()) board_.seat_keeper(*emptied.heir, seat);
  event("taken_over", fmt::format("{} serves stage {} with version {}", to_string(seat),
                                  seat.stage.value, version));
  take_seat(seat, version);
  if (board_.active())
    for (const GroupId group : board_.groups()) fetch_late(group);
  for (const Phase& phase : ledger_.open_phases()) after_progress(phase);
  advance();
  return true;
}

}  // namespace swarmline
