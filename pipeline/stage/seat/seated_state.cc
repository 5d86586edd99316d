// A stage's state on its way: frozen here for others, or fetched by a joiner that follows the
// commits since.
#include <algorithm>
#include <utility>

#include "base/hash.h"
#include "base/limits.h"
#include "base/log.h"
#include "engine/checkpoint/sha256.h"
#include "pipeline/protocol/knobs.h"
#include "pipeline/stage/seat/seated_stage.h"

namespace swarmline {

// ---- For others ---------------------------------------------------------------------------------

Result<void> SeatedStage::on_freeze(const wire::FreezeState& freeze) {
  if (freeze.version() != committed_.value)
    return fail(ErrorCode::kIncompatible, fmt::format("asked to freeze version {}, has {}",
                                                      freeze.version(), committed_.value));
  auto frozen = std::make_shared<FrozenState>();
  frozen->version = committed_.value;
  auto copy = std::make_shared<Buffer>();
  control(
      [this, copy]() -> Result<void> {
        auto made = state_.freeze();
        if (!made) return std::unexpected(std::move(made).error());
        *copy = std::move(*made);
        return {};
      },
      [this, frozen, copy] {
        frozen->bytes = SharedBytes(std::move(*copy));
        hash_next(frozen);
      });
  return {};
}

// Piece by piece between the jobs of the training.
void SeatedStage::hash_next(const std::shared_ptr<FrozenState>& frozen) {
  const std::uint64_t first = frozen->hashes.size() * Limits::state_piece_bytes;
  if (first < frozen->bytes.size()) {
    const std::uint64_t size =
        std::min<std::uint64_t>(Limits::state_piece_bytes, frozen->bytes.size() - first);
    auto hash = std::make_shared<std::string>();
    return control(
        [frozen, first, size, hash]() -> Result<void> {
          *hash = sha256_hex(frozen->bytes.view().subspan(first, size));
          return {};
        },
        [this, frozen, hash] {
          frozen->hashes.push_back(*hash);
          hash_next(frozen);
        });
  }
  frozen_ = frozen;
  frozen_used_ = context_.runtime.now();
  expire_frozen();
  wire::StateFrozen done;
  *done.mutable_seat() = to_wire(context_.self);
  done.set_version(frozen->version);
  done.set_bytes(frozen->bytes.size());
  for (const std::string& hash : frozen->hashes) done.add_hashes(hash);
  context_.notify_coordinator(make_frame(MessageKind::kStateFrozen, done));
}

void SeatedStage::expire_frozen() {
  std::weak_ptr<SeatedStage*> weak = alive_;
  context_.runtime.call_after(knobs().frozen_idle, [weak, frozen = frozen_] {
    auto self = weak.lock();
    if (!self || (*self)->frozen_ != frozen) return;
    if ((*self)->context_.runtime.now() - (*self)->frozen_used_ < knobs().frozen_idle)
      return (*self)->expire_frozen();
    (*self)->frozen_.reset();
  });
}

// ---- An era that begins with a checkpoint -------------------------------------------------------

namespace {
constexpr Seat kCoordinatorSeat{};  // peer 0
}

void SeatedStage::fetch_saved(std::uint64_t version) {
  state_fetch_ = std::make_unique<StateFetch>(
      StateFetch{.version = version, .pieces = PieceFetch(state_.saved_bytes()), .saved = true});
  state_fetch_->pieces.add_holder(kCoordinatorSeat);
  pump_state();
}

// ---- A joiner -----------------------------------------------------------------------------------

BytesView KeptState::piece(std::size_t index) const {
  const std::uint64_t first = index * Limits::state_piece_bytes;
  return bytes.bytes().subspan(
      first, std::min<std::uint64_t>(Limits::state_piece_bytes, bytes.size() - first));
}

Result<std::shared_ptr<KeptState>> SeatedStage::keep() const {
  auto frozen = state_.freeze();
  if (!frozen) return std::unexpected(std::move(frozen).error());
  return std::make_shared<KeptState>(KeptState{.stage = stage(),
                                               .era = context_.era,
                                               .version = state_.committed_version(),
                                               .bytes = std::move(*frozen)});
}

void SeatedStage::want_state() {
  wire::WantState want;
  *want.mutable_seat() = to_wire(context_.self);
  context_.notify_coordinator(make_frame(MessageKind::kWantState, want));
}

Result<void> SeatedStage::on_offer(const wire::StateOffer& offer) {
  if (!following_ || loaded_ || loading_) return {};
  std::vector<std::string> hashes(offer.hashes().begin(), offer.hashes().end());
  const std::uint64_t pieces =
      (offer.bytes() + Limits::state_piece_bytes - 1) / Limits::state_piece_bytes;
  const bool initial = offer.version() == 0 && offer.bytes() == 0;
  if (!initial && (offer.bytes() != state_.frozen_bytes() || hashes.size() != pieces))
    return fail(ErrorCode::kIncompatible, "a state of another size than this stage's");
  if (!state_fetch_ || state_fetch_->version != offer.version()) {
    state_fetch_ = std::make_unique<StateFetch>(
        StateFetch{.version = offer.version(), .pieces = PieceFetch(offer.bytes(), hashes)});
    while (!commits_.empty() && commits_.front().step() < offer.version()) commits_.pop_front();
    std::erase_if(fetches_, [&](const auto& e) { return e.first.phase.step < offer.version(); });
    std::erase_if(fetched_, [&](const auto& e) { return e.first.phase.step < offer.version(); });
  }
  for (const wire::GroupMember& holder : offer.holders()) {
    const Seat seat = from_wire(holder.seat());
    context_.links.set_address(seat, holder.address());
    state_fetch_->pieces.add_holder(seat);
  }
  if (initial) {
    load_state({});
  } else if (kept_ && kept_->version.value == offer.version() &&
             kept_->bytes.size() == offer.bytes()) {
    state_fetch_->comparing = true;
    compare_kept(std::exchange(kept_, nullptr),
                 std::make_shared<const std::vector<std::string>>(std::move(hashes)), 0);
  } else {
    pump_state();
  }
  return {};
}

// Piece by piece between other jobs, as where it was frozen: a version's number says nothing of its
// bits.
void SeatedStage::compare_kept(const std::shared_ptr<KeptState>& kept,
                               const std::shared_ptr<const std::vector<std::string>>& hashes,
                               std::size_t piece) {
  if (piece == hashes->size()) {
    log(LogLevel::kInfo, "{}: it kept version {}, nothing is fetched", to_string(context_.self),
        kept->version.value);
    return load_state(std::move(kept->bytes));
  }
  auto same = std::make_shared<bool>(false);
  control(
      [kept, hashes, piece, same]() -> Result<void> {
        *same = sha256_hex(kept->piece(piece)) == (*hashes)[piece];
        return {};
      },
      [this, kept, hashes, piece, same] {
        if (!state_fetch_ || !state_fetch_->comparing) return;
        if (*same) return compare_kept(kept, hashes, piece + 1);
        log(LogLevel::kWarn, "{}: the version {} that it kept is not its mates'",
            to_string(context_.self), kept->version.value);
        state_fetch_->comparing = false;
        pump_state();
      });
}

void SeatedStage::pump_state() {
  if (!state_fetch_ || loading_ || state_fetch_->resting || state_fetch_->comparing) return;
  for (const PieceFetch::Ask& ask :
       state_fetch_->pieces.asks(shadow_ ? 1 : PieceFetch::kPiecesMax)) {
    state_fetch_->asked = context_.runtime.now();
    wire::PieceRequest request;
    request.mutable_blob()->set_stage(stage().value);
    request.set_piece(ask.piece);
    if (state_fetch_->saved) {
      request.mutable_blob()->set_saved(state_fetch_->version);
      *request.mutable_seat() = to_wire(context_.self);
      context_.notify_coordinator(make_frame(MessageKind::kPieceRequest, request));
    } else {
      request.mutable_blob()->set_state(state_fetch_->version);
      context_.links.send(ask.holder, make_frame(MessageKind::kPieceRequest, request));
    }
  }
  if (!state_fetch_->pieces.stuck() || state_fetch_->waiting) return;
  if (state_fetch_->saved && !state_fetch_->pieces.damaged())
    return context_.fail({ErrorCode::kIncompatible,
                          fmt::format("the coordinator's checkpoint of version {} does not fit "
                                      "this stage",
                                      state_fetch_->version)});
  if (state_fetch_->pieces.damaged() && ++state_fetch_->damaged_times > knobs().fetch_tries_max)
    return context_.fail({ErrorCode::kCorrupt,
                          fmt::format("version {} of this stage's parameters came damaged {} times",
                                      state_fetch_->version, knobs().fetch_tries_max)});
  state_fetch_->waiting = true;
  std::weak_ptr<SeatedStage*> weak = alive_;
  context_.runtime.call_after(knobs().state_retry, [weak, version = state_fetch_->version] {
    auto self = weak.lock();
    if (!self || !(*self)->state_fetch_ || (*self)->state_fetch_->version != version) return;
    (*self)->state_fetch_->waiting = false;
    if (!(*self)->state_fetch_->pieces.stuck()) return;
    if ((*self)->state_fetch_->pieces.forgive_damaged()) return (*self)->pump_state();
    // Nobody has it any more: the coordinator has another frozen, if it does not know already.
    (*self)->state_fetch_.reset();
    (*self)->commits_.clear();
    (*self)->want_state();
  });
}

void SeatedStage::on_state_piece(const Seat& from, const wire::Piece& piece, BytesView bytes) {
  if (!state_fetch_ || loading_ || piece.blob().has_saved() != state_fetch_->saved ||
      (piece.blob().has_saved() ? piece.blob().saved() : piece.blob().state()) !=
          state_fetch_->version ||
      piece.blob().stage() != stage().value)
    return;
  if (piece.missing())
    state_fetch_->pieces.on_missing(from);
  else if (state_fetch_->pieces.on_piece(from, piece.piece(), bytes, piece.checksum()))
    state_fetch_->damaged_times = 0;
  if (state_fetch_->pieces.done())
    load_state(state_fetch_->pieces.take());
  else
    shadow_ ? rest_and_pump_state() : pump_state();
}

// As long as the piece took: half of the link is left to the stage that this peer serves.
void SeatedStage::rest_and_pump_state() {
  if (std::exchange(state_fetch_->resting, true)) return;
  const Duration took = context_.runtime.now() - state_fetch_->asked;
  std::weak_ptr<SeatedStage*> weak = alive_;
  context_.runtime.call_after(
      std::min(took, knobs().rest_max), [weak, version = state_fetch_->version] {
        auto self = weak.lock();
        if (!self || !(*self)->state_fetch_ || (*self)->state_fetch_->version != version) return;
        (*self)->state_fetch_->resting = false;
        (*self)->pump_state();
      });
}

void SeatedStage::load_state(Buffer state) {
  loading_ = true;
  const std::uint64_t version = state_fetch_->version;
  for (const auto& [peer, pieces] : state_fetch_->pieces.pieces_by_holder())
    log(LogLevel::kInfo, "{}: {} pieces of version {} from peer {}", to_string(context_.self),
        pieces, version, peer.value);
  auto bytes = std::make_shared<Buffer>(std::move(state));
  auto digest = std::make_shared<std::uint64_t>();
  control(
      [this, bytes, digest, version]() -> Result<void> {
        if (bytes->size() > 0) SWARMLINE_TRY(state_.load(Version{version}, bytes->bytes()));
        auto made = state_.digest();
        if (!made) return std::unexpected(std::move(made).error());
        *digest = *made;
        return {};
      },
      [this, digest, version] {
        const bool saved = std::exchange(state_fetch_, nullptr)->saved;
        state_is_here(Version{version});
        // With a delay the version before is in use, too: it comes with the next commit.
        if (saved || version == 0 || config_.pipeline.delay == 0) say_ready(*digest);
        if (saved) want_leases();
        advance_commits();
      });
}

void SeatedStage::state_is_here(Version version) {
  loading_ = false;
  loaded_ = true;
  committed_ = version;
  if (version.value == 0) return;
  const Phase before{PhaseKind::kTrain, version.value - 1};
  phases_.retire(before);
  averager_.retire(before);
}

// From the shadow of the stage that this peer has been: nothing is fetched.
void SeatedStage::inherit() {
  auto digest = std::make_shared<std::uint64_t>();
  control(
      [this, digest]() -> Result<void> {
        SWARMLINE_TRY(state_.adopt(heritage_->state_));
        auto made = state_.digest();
        if (!made) return std::unexpected(std::move(made).error());
        *digest = *made;
        return {};
      },
      [this, digest] {
        state_is_here(heritage_->committed_);
        digests_ = heritage_->digests_;
        retained_ = heritage_->retained_;
        retained_keys_ = heritage_->retained_keys_;
        heritage_.reset();
        say_ready(*digest);
        // What it said of these as a shadow may not have been heard.
        const std::map<RoundKey, std::uint64_t> held = digests_;
        for (const auto& [key, sum] : held)
          if (key.phase.step == committed_.value) reduced(key, 0);
        advance_commits();
      });
}

void SeatedStage::say_ready(std::uint64_t digest) {
  reached_ = {committed_.value, digest};
  wire::Ready ready;
  *ready.mutable_seat() = to_wire(context_.self);
  ready.set_version(committed_.value);
  ready.set_state_digest(digest);
  context_.notify_coordinator(make_frame(MessageKind::kReady, ready));
}

// Commits that come while the state is on its way: their gradients are fetched at once, for mates
// keep them for a few steps only.
Result<void> SeatedStage::follow(const wire::Commit& commit) {
  if (!commits_.empty() ? commit.step() != commits_.back().step() + 1
                        : loaded_ && commit.step() != committed_.value)
    return fail(ErrorCode::kIncompatible,
                fmt::format("commit of step {} on version {}", commit.step(), committed_.value));
  if (commits_.size() >= kFollowedCommitsMax) {
    log(LogLevel::kWarn, "{}: {} commits behind; starting over from a newer state",
        to_string(context_.self), commits_.size());
    state_fetch_.reset();
    commits_.clear();
    fetches_.clear();
    fetched_.clear();
    loaded_ = false;
    want_state();
    return {};
  }
  commits_.push_back(commit);
  for (const wire::GroupDigest& group : commit.groups()) {
    if (commit.skipped() || !has_group(GroupId{group.group()})) continue;
    const RoundKey key{
        {PhaseKind::kTrain, commit.step()}, GroupId{group.group()}, RoundAttempt{group.attempt()}};
    if (!digests_.contains(key) && !fetched_.contains(key) && !fetches_.contains(key) &&
        !placing_.contains(key))
      fetch(key, group.digest(), mates(), false);
  }
  if (loaded_) advance_commits();
  return {};
}

}  // namespace swarmline
