#include "pipeline/coordinator/members/membership.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "balancer/seating.h"
#include "base/check.h"
#include "base/limits.h"
#include "base/marks.h"
#include "engine/net/network.h"
#include "pipeline/coordinator/members/data_desk.h"
#include "pipeline/protocol/knobs.h"
#include "pipeline/protocol/message_kinds.h"

namespace swarmline {

namespace {
constexpr double kSpeedWeight = 0.25;  // of the newest step in a peer's measured speed

std::string host_of(const std::string& address) {
  const auto parsed = parse_address(address);
  return parsed ? parsed->host : std::string();
}

void describe(Member& member, const wire::Hello& hello) {
  member.at = location_of(hello);
  member.name = hello.name();
  member.address = hello.address();
  member.key = hello.key();
  member.device = hello.device();
  member.price = hello.price();
  member.egress_price = hello.egress_price();
  member.bandwidth = hello.bandwidth();
  member.host = hello.host();
  member.gpu = {.uuid = hello.gpu().uuid(), .nccl = hello.gpu().nccl(), .ipc = hello.gpu().ipc()};
  member.memory_bytes = hello.memory_bytes();
  member.shadow_memory_bytes = hello.shadow_memory_bytes();
  member.lacks_data = lacks_data(hello);
  member.fetches_data = fetches_data(hello);
  member.serves_data = hello.data().serves();
}
}  // namespace

Location location_of(const wire::Hello& hello) {
  return {.zone = hello.zone(), .host = host_of(hello.address())};
}

std::string called(const Seat& seat, const std::string& name) {
  const std::string incarnation =
      seat.incarnation.value > 1 ? fmt::format(", incarnation {}", seat.incarnation.value) : "";
  if (name.empty())
    return fmt::format("peer {} (stage {}{})", seat.peer.value, seat.stage.value, incarnation);
  return fmt::format("{} (peer {}, stage {}{})", name, seat.peer.value, seat.stage.value,
                     incarnation);
}

std::string name_of(const Member& member) {
  return fmt::format("peer {} \"{}\" of stage {} ({})", member.seat.peer.value, member.name,
                     member.seat.stage.value, member.address);
}

SeatRecord record_of(const Member& member, std::string state) {
  const bool known = member.reach != Reach::kUnknown;
  return {.seat = member.seat,
          .address = member.address,
          .state = std::move(state),
          .key = member.key,
          .reach = known ? std::string(to_string(member.reach)) : std::string(),
          .name = member.name};
}

Membership::Membership(std::vector<std::uint32_t> targets, bool tied,
                       std::vector<std::uint64_t> memory)
    : targets_(std::move(targets)),
      memory_(std::move(memory)),
      stages_(targets_.size()),
      groups_(static_cast<std::uint32_t>(targets_.size()), tied) {
  memory_.resize(targets_.size());
}

// ---- Counts -------------------------------------------------------------------------------------

void Membership::count(const Member& member) {
  ++changes_;
  Stage& stage = stages_.at(member.seat.stage.value);
  if (member.state == MemberState::kReady) stage.ready.insert(member.seat.peer);
  if (member.state == MemberState::kEarly) stage.early.insert(member.seat.peer);
  if (member.state == MemberState::kBuilding) ++building_;
  if (member.state == MemberState::kLost) return;
  if (member.state != MemberState::kAway) prices_.add(member.price, serves(member.state));
  ++stage.live;
  if (member.draining)
    ++stage.draining;
  else
    stage.staying.add(member.at);
}

void Membership::uncount(const Member& member) {
  Stage& stage = stages_.at(member.seat.stage.value);
  if (member.state == MemberState::kReady) stage.ready.erase(member.seat.peer);
  if (member.state == MemberState::kEarly) stage.early.erase(member.seat.peer);
  if (member.state == MemberState::kBuilding) --building_;
  if (member.state == MemberState::kLost) return;
  if (member.state != MemberState::kAway) prices_.remove(member.price, serves(member.state));
  --stage.live;
  if (member.draining)
    --stage.draining;
  else
    stage.staying.remove(member.at);
}

void Membership::put(const Member& member) {
  const auto [known, is_new] = members_.try_emplace(member.seat.peer, member);
  if (!is_new) {
    uncount(known->second);
    known->second = member;
  }
  count(member);
}

void Membership::become(PeerId peer, MemberState state) {
  Member& member = members_.at(peer);
  uncount(member);
  member.state = state;
  count(member);
}

void Membership::set_draining(PeerId peer, bool draining) {
  Member& member = members_.at(peer);
  uncount(member);
  member.draining = draining;
  count(member);
}

void Membership::check_invariants() const {
  Membership counted(targets_);
  for (const auto& [peer, member] : members_) counted.count(member);
  SWARMLINE_CHECK(counted.stages_ == stages_ && counted.building_ == building_ &&
                  counted.prices_ == prices_);
}

// ---- Who comes ----------------------------------------------------------------------------------

const Member* Membership::former(const wire::Hello& hello) const {
  const Seat before = from_wire(hello.previous());
  const auto known = members_.find(before.peer);
  if (known == members_.end() || known->second.state != MemberState::kLost ||
      known->second.seat.incarnation < before.incarnation || !is_same(known->second, hello))
    return nullptr;
  if (known->second.seat != before) SWARMLINE_MARK("membership.welcome_was_lost");
  return &known->second;
}

bool Membership::is_same(const Member& member, const wire::Hello& hello) {
  if (member.key != hello.key()) return false;
  return member.name.empty() ? member.address == hello.address() : member.name == hello.name();
}

void Membership::restore(const SeatRecord& record, bool away) {
  Member member;
  member.seat = record.seat;
  member.address = record.address;
  member.at.host = host_of(record.address);
  member.key = record.key;
  member.reach = reach_from(record.reach);
  member.name = record.name;
  member.state = away ? MemberState::kAway : MemberState::kLost;
  put(member);
  std::erase(lost_, record.seat.peer);
  if (!away) lost_.push_back(record.seat.peer);
  next_peer_ = std::max(next_peer_, record.seat.peer.value + 1);
}

std::string Membership::name_of(PeerId peer) const {
  const auto member = members_.find(peer);
  return member == members_.end() ? std::string() : member->second.name;
}

std::vector<PeerId> Membership::missed_at(StageId stage) const {
  const std::size_t wanted = target_of(stage), live = live_of(stage);
  std::vector<PeerId> missed;
  for (auto lost = lost_.rbegin(); lost != lost_.rend() && live + missed.size() < wanted; ++lost)
    if (members_.at(*lost).seat.stage == stage) missed.push_back(*lost);
  return missed;
}

std::vector<Seat> Membership::away() const {
  std::vector<Seat> seats;
  for (const auto& [peer, member] : members_)
    if (member.state == MemberState::kAway) seats.push_back(member.seat);
  return seats;
}

void Membership::resume(const wire::Hello& hello) {
  Member& member = members_.at(PeerId{hello.previous().peer()});
  uncount(member);
  describe(member, hello);
  member.state = MemberState::kReady;
  count(member);
}

bool Membership::all_have_memory_for(double times) const {
  return std::ranges::all_of(members_, [&](const auto& entry) {
    const Member& member = entry.second;
    if (!serves(member.seat)) return true;
    const auto needed = static_cast<double>(memory_[member.seat.stage.value]);
    return needed > 0 && static_cast<double>(member.memory_bytes) >= times * needed;
  });
}

// Where it lacks the data, the stage that reads it counts as full; where it fetches it, as long as
// another stage needs somebody.
Result<StageId> Membership::place(PeerId newcomer, const wire::Hello& hello) const {
  std::vector<StageFacts> facts;
  std::vector<StageStaff> staff;  // nobody knows how fast they are
  for (std::size_t s = 0; s < stages_.size(); ++s) {
    const std::uint32_t peers = stages_[s].live - stages_[s].draining;
    facts.push_back({.cost = 1, .memory_bytes = memory_[s], .target = targets_[s]});
    staff.push_back(
        {.peers = peers, .throughput = static_cast<double>(peers), .located = &stages_[s].staying});
  }
  bool others_lack = false;
  for (std::size_t s = 0; s < stages_.size(); ++s)
    others_lack = others_lack || (s != kReadingStage.value && staff[s].peers < targets_[s]);
  if (lacks_data(hello) || (fetches_data(hello) && others_lack))
    staff[kReadingStage.value].peers = Limits::stage_peers_max;
  return place_joiner(facts, staff,
                      {.peer = newcomer,
                       .speed = 1,
                       .memory_bytes = hello.memory_bytes(),
                       .stage = std::nullopt,
                       .at = location_of(hello)});
}

// Who serves has said that it holds another state.
bool Membership::keeps(const Member& member, const KeptCopy& copy) {
  return member.kept == copy &&
         (member.state == MemberState::kBuilding || member.state == MemberState::kFollowing);
}

Result<Seat> Membership::join(const wire::Hello& hello, std::optional<StageId> chosen) {
  if (members_.size() - lost_.size() >= static_cast<std::size_t>(Limits::peers_max))
    return fail(ErrorCode::kRefused,
                fmt::format("the run has {} peers, as many as it takes", Limits::peers_max));
  if (!is_peer_number(next_peer_)) ++next_peer_;
  const PeerId id{next_peer_};
  if (chosen == kReadingStage && lacks_data(hello)) chosen.reset();
  const Result<StageId> stage = chosen ? Result<StageId>(*chosen) : place(id, hello);
  if (!stage) return std::unexpected(stage.error());
  if (std::cmp_greater_equal(live_of(*stage), Limits::stage_peers_max))
    return fail(ErrorCode::kRefused,
                fmt::format("stage {} has {} peers, as many as average together", stage->value,
                            Limits::stage_peers_max));
  Seat seat{id, *stage, Incarnation{1}};
  std::uint64_t contributions = 0;
  double seconds = 0;
  if (const Member* before = former(hello)) {
    seat.peer = before->seat.peer;
    seat.incarnation.value = before->seat.incarnation.value + 1;
    contributions = before->contributions;
    if (before->seat.stage == *stage) seconds = before->seconds_per_microbatch;
    std::erase(lost_, seat.peer);
  } else {
    ++next_peer_;
  }
  Member member;
  member.seat = seat;
  member.contributions = contributions;
  member.seconds_per_microbatch = seconds;
  describe(member, hello);
  if (hello.has_kept() && hello.kept().stage() < stages_.size())
    member.kept = {.stage = StageId{static_cast<std::uint16_t>(hello.kept().stage())},
                   .version = hello.kept().version()};
  put(member);
  return seat;
}

bool Membership::is_current(const Seat& seat) const {
  auto it = members_.find(seat.peer);
  return it != members_.end() && it->second.seat == seat && it->second.state != MemberState::kLost;
}

bool Membership::serves(const Seat& seat) const {
  return is_current(seat) && serves(members_.at(seat.peer).state);
}

bool Membership::serves_early(const Seat& seat) const {
  return is_current(seat) && members_.at(seat.peer).state == MemberState::kEarly;
}

bool Membership::holds_state(const Seat& seat) const {
  return is_current(seat) && members_.at(seat.peer).state == MemberState::kReady;
}

bool Membership::follows(const Seat& seat) const {
  return is_current(seat) && members_.at(seat.peer).state == MemberState::kFollowing;
}

void Membership::measured(const Seat& seat, std::uint64_t busy_ns, std::uint32_t passes) {
  if (!is_current(seat) || busy_ns == 0 || passes == 0) return;
  double& known = members_.at(seat.peer).seconds_per_microbatch;
  const double seconds = static_cast<double>(busy_ns) * 1e-9 / passes * kPassesOfAMicrobatch;
  known = known == 0 ? seconds : known + kSpeedWeight * (seconds - known);
}

void Membership::contributed(PeerId peer, std::uint32_t microbatches) {
  members_.at(peer).contributions += microbatches;
}

bool Membership::has_copy(StageId stage, std::uint64_t version) const {
  return std::ranges::any_of(members_, [&](const auto& entry) {
    const Member& member = entry.second;
    return member.seat.stage == stage && keeps(member, {stage, version});
  });
}

std::optional<Seat> Membership::copy_elsewhere(StageId stage, std::uint64_t version) const {
  const auto found = std::ranges::find_if(members_, [&](const auto& entry) {
    const Member& member = entry.second;
    return member.seat.stage != stage && keeps(member, {stage, version});
  });
  return found == members_.end() ? std::nullopt : std::optional<Seat>(found->second.seat);
}

bool Membership::has_data_elsewhere() const {
  return std::ranges::any_of(members_, [](const auto& entry) {
    const Member& member = entry.second;
    return member.serves_data && member.state == MemberState::kReady && !member.draining &&
           member.seat.stage != kReadingStage;
  });
}

void Membership::heartbeat(const wire::Heartbeat& beat) {
  const Seat seat = from_wire(beat.seat());
  if (!is_current(seat)) return;
  Member& member = members_.at(seat.peer);
  member.in_flight = beat.in_flight();
  member.busy_ns = beat.busy_ns();
  member.relayed_links = beat.relayed_links();
  member.relayed_bytes = beat.relayed_bytes();
  if (member.fetches_data && beat.has_data())
    member.fetched = DataFetched{
        .pieces = beat.data().pieces(), .of = beat.data().of(), .from = PeerId{beat.data().from()}};
}

void Membership::fence(const Seat& seat) {
  if (!is_current(seat)) return;
  become(seat.peer, MemberState::kLost);
  lost_.push_back(seat.peer);
  rosters_.forget(seat.peer);
  std::erase_if(next_told_, [&](const auto& told) { return told.first.peer == seat.peer; });
}

std::optional<PeerId> Membership::long_gone() const {
  if (lost_.size() <= knobs().lost_peers_kept) return std::nullopt;
  return lost_.front();
}

void Membership::forget(PeerId lost) {
  SWARMLINE_CHECK(members_.at(lost).state == MemberState::kLost);
  std::erase(lost_, lost);
  members_.erase(lost);
}

std::vector<Seat> Membership::ready_of(StageId stage) const {
  std::vector<Seat> seats;
  const std::set<PeerId>& ready = stages_.at(stage.value).ready;
  seats.reserve(ready.size());
  for (const PeerId peer : ready) seats.push_back(members_.at(peer).seat);
  return seats;
}

std::vector<Seat> Membership::serving_of(StageId stage) const {
  std::vector<Seat> seats = ready_of(stage);
  const std::set<PeerId>& early = stages_.at(stage.value).early;
  for (const PeerId peer : early) seats.push_back(members_.at(peer).seat);
  if (!early.empty()) std::ranges::sort(seats, {}, &Seat::peer);
  return seats;
}

std::vector<Seat> Membership::early() const {
  std::vector<Seat> seats;
  for (const Stage& stage : stages_)
    for (const PeerId peer : stage.early) seats.push_back(members_.at(peer).seat);
  return seats;
}

std::vector<Seat> Membership::staying_of(StageId stage) const {
  std::vector<Seat> seats = ready_of(stage);
  std::erase_if(seats, [this](const Seat& seat) { return members_.at(seat.peer).draining; });
  return seats;
}

bool Membership::formed() const {
  for (std::size_t s = 0; s < targets_.size(); ++s)
    if (stages_[s].ready.size() < targets_[s]) return false;
  return true;
}

bool Membership::covered() const {
  return std::ranges::none_of(stages_, [](const Stage& stage) { return stage.ready.empty(); });
}

std::vector<StageId> Membership::empty_stages() const {
  std::vector<StageId> empty;
  for (std::uint16_t s = 0; s < targets_.size(); ++s)
    if (live_of(StageId{s}) == 0) empty.push_back(StageId{s});
  return empty;
}

std::set<StageId> Membership::averaging_with(StageId stage) const {
  std::set<StageId> stages;
  for (const GroupId group : groups_.groups_of(stage))
    for (const StageId other : groups_.stages_of(group)) stages.insert(other);
  return stages;
}

std::set<Seat> Membership::refresh_views() {
  struct Stage {
    std::vector<Seat> ready, staying, fetching;
    double seconds = 0;  // a microbatch, of those measured
    std::uint32_t measured = 0;
  };
  std::map<StageId, Stage> stages;
  for (std::uint16_t s = 0; s < targets_.size(); ++s) stages[StageId{s}];
  for (const auto& [peer, member] : members_) {
    Stage& stage = stages[member.seat.stage];
    if (member.state == MemberState::kFollowing) stage.fetching.push_back(member.seat);
    if (!serves(member.seat)) continue;
    stage.ready.push_back(member.seat);
    if (!member.draining) stage.staying.push_back(member.seat);
    stage.seconds += member.seconds_per_microbatch;
    stage.measured += member.seconds_per_microbatch > 0 ? 1 : 0;
  }
  std::set<Seat> changed;
  for (auto& [id, stage] : stages) {
    RosterDesk::Addresses serving;
    for (const Seat& seat : stage.ready) serving.emplace(seat, members_.at(seat.peer).address);
    if (rosters_.update(id, serving))
      for (const StageId reader : averaging_with(id)) {
        changed.insert(stages[reader].ready.begin(), stages[reader].ready.end());
        changed.insert(stages[reader].fetching.begin(), stages[reader].fetching.end());
      }
    if (id.value == 0) continue;
    const double usual = stage.measured > 0 ? stage.seconds / stage.measured : 1;
    std::map<Seat, double> speeds;
    for (const Seat& seat : stage.staying.empty() ? stage.ready : stage.staying) {
      const double seconds = members_.at(seat.peer).seconds_per_microbatch;
      speeds[seat] = 1 / (seconds > 0 ? seconds : usual);
    }
    const StageId before{static_cast<std::uint16_t>(id.value - 1)};
    const std::vector<Seat>& senders = stages[before].ready;
    changed.merge(candidates_.update(before, senders, speeds));
    if (weigh_zones(before, traffic_of(senders, id)))
      changed.insert(senders.begin(), senders.end());
  }
  return changed;
}

wire::Membership Membership::view_for(const Seat& seat) {
  rosters_.forget(seat);
  next_told_.erase(seat);
  return news_for(seat);
}

wire::Membership Membership::news_for(const Seat& seat) {
  wire::Membership view;
  *view.mutable_to() = to_wire(seat);
  for (const StageId stage : averaging_with(seat.stage))
    if (auto news = rosters_.news_for(seat, stage)) *view.add_rosters() = std::move(*news);
  std::map<Seat, double> next;
  for (const Seat& candidate : candidates_.known_to(seat))
    next[candidate] = weight_of(seat, candidate);
  const auto [told, first] = next_told_.try_emplace(seat);
  view.set_same_next(!first && told->second == next);
  told->second = next;
  if (view.same_next()) return view;
  for (const auto& [candidate, weight] : next) {
    wire::PeerInfo* info = view.add_next();
    *info->mutable_seat() = to_wire(candidate);
    info->set_address(members_.at(candidate.peer).address);
    if (weight != 1) info->set_weight(weight);
  }
  return view;
}

}  // namespace swarmline
