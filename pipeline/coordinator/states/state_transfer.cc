#include "pipeline/coordinator/states/state_transfer.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/marks.h"
#include "pipeline/protocol/knobs.h"
#include "pipeline/protocol/message_kinds.h"

namespace swarmline {

namespace {
constexpr std::size_t kHashBytes = 64;  // SHA-256 in hexadecimal

// Everybody can draw that version: nobody has to hold it.
bool is_from_seed(const RunConfig& config, std::uint64_t version) {
  return version == 0 && config.run.init.empty();
}
}  // namespace

void StateTransfer::want(const Seat& joiner) {
  if (!shadows_.has(joiner) && members_.follows(joiner)) {
    std::optional<KeptCopy>& kept = members_.at(joiner.peer).kept;
    if (kept && kept->stage == joiner.stage) kept.reset();
  }
  desk_.lost(joiner);
  desk_.want(joiner);
  dirty_ = true;
}

void StateTransfer::freeze() {
  dirty_ = false;
  const std::uint64_t version = sequence_.committed();
  const bool from_seed = is_from_seed(shape_.config, version);
  for (const StageSpec& stage : shape_.stages) {
    std::vector<Seat> mates = members_.ready_of(stage.stage);
    if (mates.empty() && !from_seed) {
      offer_kept(stage.stage);
      continue;
    }
    if (mates.size() > kFreezingMatesMax) mates.resize(kFreezingMatesMax);
    const bool frozen_already = desk_.offer(stage.stage).has_value();
    const std::vector<Seat> joiners = desk_.begin(stage.stage, version, mates);
    if (joiners.empty()) continue;
    SWARMLINE_MARK("state_transfer.frozen");
    for (const Seat& joiner : joiners) {
      if (shadows_.has(joiner)) {
        shadows_.begin(joiner, alarms_.now());
      } else if (!members_.serves_early(joiner)) {  // it is the version that it serves with
        members_.become(joiner.peer, MemberState::kFollowing);
      }
      detector_.begins_to_fetch(joiner.peer, alarms_.now());
      outbox_.send(joiner, make_frame(MessageKind::kMembership, members_.view_for(joiner)));
    }
    wire::FreezeState freeze;
    freeze.set_version(version);
    if (!from_seed && !frozen_already)
      for (const Seat& mate : mates)
        outbox_.send(mate, make_frame(MessageKind::kFreezeState, freeze));
    offer(stage.stage);
  }
}

// It may end its fetch yet, and is seated if it does; its holders go over to the next state.
void StateTransfer::look() {
  for (const StageSpec& stage : shape_.stages)
    for (const Seat& slow : desk_.holding_up(stage.stage)) {
      if (alarms_.now() - detector_.moved_at(slow.peer) <= knobs().join_patience) continue;
      SWARMLINE_MARK("state_transfer.not_waited_for");
      log(LogLevel::kWarn, "{} gets no further with its state: others of its stage go first",
          to_string(slow));
      desk_.seated(slow);
      dirty_ = true;
    }
}

void StateTransfer::on_frozen(const wire::StateFrozen& frozen) {
  const Seat seat = from_wire(frozen.seat());
  std::vector<std::string> hashes(frozen.hashes().begin(), frozen.hashes().end());
  const std::uint64_t pieces =
      (frozen.bytes() + knobs().state_piece_bytes - 1) / knobs().state_piece_bytes;
  bool fits = hashes.size() == pieces;
  for (const std::string& hash : hashes) fits = fits && hash.size() == kHashBytes;
  if (!fits || !desk_.frozen(seat, frozen.version(), frozen.bytes(), std::move(hashes))) return;
  offer(seat.stage);
}

void StateTransfer::offer(StageId stage) {
  const auto offer = desk_.offer(stage);
  if (!offer) return;
  if (offer->holders.empty() && !is_from_seed(shape_.config, offer->version)) return;
  wire::StateOffer message;
  message.set_version(offer->version);
  message.set_bytes(offer->bytes);
  for (const std::string& hash : offer->hashes) message.add_hashes(hash);
  for (const Seat& seat : offer->holders) {
    wire::GroupMember* holder = message.add_holders();
    *holder->mutable_seat() = to_wire(seat);
    holder->set_address(members_.members().at(seat.peer).address);
  }
  for (const Seat& follower : offer->followers) {
    *message.mutable_to() = to_wire(follower);
    outbox_.send(follower, make_frame(MessageKind::kStateOffer, message));
  }
}

// Nobody can say whether it is right, nor has anybody another.
void StateTransfer::offer_kept(StageId stage) {
  for (const Seat& joiner : desk_.waiting_at(stage)) {
    if (shadows_.has(joiner) ||
        members_.at(joiner.peer).kept != KeptCopy{stage, sequence_.committed()})
      continue;
    SWARMLINE_MARK("state_transfer.kept_offered");
    desk_.seated(joiner);
    members_.become(joiner.peer, MemberState::kFollowing);
    detector_.begins_to_fetch(joiner.peer, alarms_.now());
    outbox_.send(joiner, make_frame(MessageKind::kMembership, members_.view_for(joiner)));
    wire::StateOffer message;
    message.set_version(sequence_.committed());
    message.set_kept(true);
    *message.mutable_to() = to_wire(joiner);
    outbox_.send(joiner, make_frame(MessageKind::kStateOffer, message));
  }
}

void StateTransfer::forget(const Seat& joiner) {
  desk_.lost(joiner);
  dirty_ = true;  // others may wait for a newer state
}

void StateTransfer::arrived(const Seat& joiner) {
  if (const auto offer = desk_.offer(joiner.stage);
      offer && offer->bytes > 0 && desk_.follows(joiner))
    fetched_.push_back(
        {.stage = joiner.stage, .bytes = offer->bytes, .by_shadow = shadows_.has(joiner)});
  desk_.seated(joiner);
  dirty_ = true;  // others may have waited for the next frozen state
}

bool StateTransfer::can_follow_on(std::uint64_t version) const {
  const std::uint64_t committed = sequence_.committed();
  return version > 0 && version <= committed && committed - version <= recent_commits_.size();
}

void StateTransfer::follow_on(const Seat& seat, std::uint64_t version) {
  SWARMLINE_MARK("state_transfer.followed_on");
  members_.become(seat.peer, MemberState::kFollowing);
  outbox_.send(seat, make_frame(MessageKind::kMembership, members_.view_for(seat)));
  for (const CommitOrder& commit : recent_commits_)
    if (commit.step >= version)
      outbox_.send(seat, make_frame(MessageKind::kCommit, commit.message_to(seat, false)));
}

void StateTransfer::remember(CommitOrder order) {
  recent_commits_.push_back(std::move(order));
  if (recent_commits_.size() > kRecentCommitsMax) recent_commits_.pop_front();
}

void StateTransfer::on_seat_lost(const SeatLoss& lost) {
  forget(lost.seat);
}

void StateTransfer::on_rollback() {
  desk_ = JoinDesk();
  recent_commits_.clear();
  dirty_ = false;
}

}  // namespace swarmline
