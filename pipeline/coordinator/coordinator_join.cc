// Seats taken after the start: a joiner builds its stage, fetches a frozen state from its mates
// while they go on, follows the commits since, and is seated once it holds what is committed.
#include "base/limits.h"
#include "base/log.h"
#include "pipeline/coordinator/coordinator_impl.h"

namespace swarmline {

namespace {
constexpr std::size_t kFreezingMatesMax = 4;
constexpr std::size_t kHashBytes = 64;
}  // namespace

void Coordinator::Impl::on_want_state(const Seat& seat) {
  if (state_ == State::kWaiting) return;
  Member& member = membership_.at(seat.peer);
  if (member.state == MemberState::kReady) return;
  desk_.lost(seat);  // asking again: what it had is of no use
  desk_.want(seat);
  freeze_states();
}

void Coordinator::Impl::freeze_states() {
  const std::uint64_t version = sequence_.committed();
  for (std::uint16_t s = 0; s < shape_.stages.size(); ++s) {
    std::vector<Seat> mates = membership_.ready_of(StageId{s});
    if (mates.size() > kFreezingMatesMax) mates.resize(kFreezingMatesMax);
    const bool frozen_already = desk_.offer(StageId{s}).has_value();
    const std::vector<Seat> joiners = desk_.begin(StageId{s}, version, mates);
    if (joiners.empty()) continue;
    for (const Seat& joiner : joiners) {
      if (shadows_.has(joiner)) {
        shadows_.begin(joiner, runtime_.now());
      } else {
        membership_.at(joiner.peer).state = MemberState::kFollowing;
      }
      notify(joiner, make_frame(MessageKind::kMembership, membership_.view_for(joiner)));
    }
    wire::FreezeState freeze;
    freeze.set_version(version);
    if (version > 0 && !frozen_already)
      for (const Seat& mate : mates) notify(mate, make_frame(MessageKind::kFreezeState, freeze));
    offer_state(StageId{s});
  }
}

void Coordinator::Impl::on_state_frozen(const wire::StateFrozen& frozen) {
  const Seat seat = from_wire(frozen.seat());
  std::vector<std::string> hashes(frozen.hashes().begin(), frozen.hashes().end());
  const std::uint64_t pieces =
      (frozen.bytes() + Limits::state_piece_bytes - 1) / Limits::state_piece_bytes;
  bool fits = hashes.size() == pieces;
  for (const std::string& hash : hashes) fits = fits && hash.size() == kHashBytes;
  if (!fits || !desk_.frozen(seat, frozen.version(), frozen.bytes(), std::move(hashes))) return;
  offer_state(seat.stage);
}

void Coordinator::Impl::offer_state(StageId stage) {
  const auto offer = desk_.offer(stage);
  if (!offer) return;
  wire::StateOffer message;
  message.set_version(offer->version);
  message.set_bytes(offer->bytes);
  for (const std::string& hash : offer->hashes) message.add_hashes(hash);
  for (const Seat& seat : offer->holders) {
    wire::GroupMember* holder = message.add_holders();
    *holder->mutable_seat() = to_wire(seat);
    holder->set_address(membership_.members().at(seat.peer).address);
  }
  for (const Seat& follower : offer->followers)
    notify(follower, make_frame(MessageKind::kStateOffer, message));
}

void Coordinator::Impl::on_follower_ready(const Seat& seat, const wire::Ready& ready) {
  if (seat_heir(seat, ready)) return;
  audit_.follower_ready(seat, ready.version(), ready.state_digest());
  seat_followers(seat.stage);
}

// A follower is seated when it holds the committed version, bit for bit as a mate says it is.
void Coordinator::Impl::seat_followers(StageId stage) {
  const std::uint64_t version = sequence_.committed();
  if (state_ != State::kTraining) return;
  for (const ReplicaAudit::Follower& follower : audit_.followers_of(stage, version)) {
    const Seat& seat = follower.seat;
    if (!membership_.is_current(seat)) continue;
    audit_.take_follower(seat);
    if (!follower.same) {
      fence(seat, "the state it fetched is not the one of its stage");
      if (ended_ || state_ != State::kTraining) return;
      continue;
    }
    take_seat(seat, version);
    if (ended_) return;
    audit_.say(seat, version, follower.digest);
  }
}

void Coordinator::Impl::take_seat(const Seat& seat, std::uint64_t version) {
  Member& member = membership_.at(seat.peer);
  if (auto kept =
          journal_.record_seat({.seat = seat, .address = member.address, .state = "active"});
      !kept)
    return journal_failed(kept.error());
  member.state = MemberState::kReady;
  detector_.works_from(seat, runtime_.now());
  member.stepped = version;
  desk_.seated(seat);
  balancer_.seats_changed();
  event("peer_seated", fmt::format("{} holds version {}", to_string(seat), version));
  send_membership();
  for (const Phase& phase : ledger_.open_phases()) {
    wire::OpenPhase open = opened_.at(phase);
    open.set_sealed(is_sealed(phase));
    notify(seat, make_frame(MessageKind::kOpenPhase, open));
    if (open.sealed() && !reopened_.empty()) notify(seat, reopen_of(open, reopened_));
  }
  // The commit waits for it: were the round's members lost, nobody else would have the result.
  for (const GroupId group : shape_.groups.groups_of(seat.stage)) {
    if (!board_.active() || board_.is_member(group, seat)) continue;
    board_.add_late(group, seat);
    fetch_late(group);
  }
  pump_leases();
  freeze_states();  // others may have waited for the next frozen state
}

}  // namespace swarmline
