#include "pipeline/stage/state/state_exchange.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/marks.h"
#include "engine/checkpoint/sha256.h"
#include "pipeline/protocol/knobs.h"

namespace swarmline {

namespace {
constexpr Seat kCoordinatorSeat{};  // peer 0
constexpr int kLooks = 4;           // for late holders, in the time that one has
}  // namespace

using enum StateProgress;

StateExchange::StateExchange(StageContext& context, StageJobs& jobs, bool here, bool shadow,
                             std::shared_ptr<KeptState> kept, Hooks hooks)
    : context_(context),
      jobs_(jobs),
      shadow_(shadow),
      hooks_(std::move(hooks)),
      progress_(here ? kHere : kWanted),
      kept_(std::move(kept)) {}

void StateExchange::become(StateProgress progress) {
  SWARMLINE_CHECK_MSG(kStateProgress.allows(progress_, progress),
                      fmt::format("a stage's state is {} and becomes {}",
                                  kStateProgress.name(progress_), kStateProgress.name(progress)));
  progress_ = progress;
}

// ---- Which state --------------------------------------------------------------------------------

void StateExchange::want() {
  if (progress_ != kWanted) become(kWanted);
  fetch_.reset();
  wire::WantState want;
  *want.mutable_seat() = to_wire(context_.self);
  context_.notify_coordinator(make_frame(MessageKind::kWantState, want));
}

void StateExchange::fetch_saved(Version version) {
  SWARMLINE_MARK("state.fetched_from_a_checkpoint");
  become(kFetching);
  ++fetches_;
  fetch_.emplace(Fetch{.version = version,
                       .pieces = PieceFetch(context_.state.saved_bytes()),
                       .origin = StateOrigin::kCheckpoint});
  fetch_->pieces.add_holder(kCoordinatorSeat);
  pump();
}

void StateExchange::taken_over() {
  SWARMLINE_MARK("state.taken_over_from_a_shadow");
  ++fetches_;  // what comes of an offer meanwhile is late
  fetch_.reset();
  if (progress_ != kHere) become(kHere);
}

Result<void> StateExchange::on_offer(const wire::StateOffer& offer) {
  if (progress_ == kHere || progress_ == kLoading || (fetch_ && is_saved())) return {};
  if (offer.kept()) {
    begin_with_kept(Version{offer.version()});
    return {};
  }
  const std::vector<std::string> hashes(offer.hashes().begin(), offer.hashes().end());
  const std::uint64_t pieces =
      (offer.bytes() + knobs().state_piece_bytes - 1) / knobs().state_piece_bytes;
  const bool initial = offer.version() == 0 && offer.bytes() == 0;
  if (!initial && (offer.bytes() != context_.state.saved_bytes() || hashes.size() != pieces))
    return fail(ErrorCode::kIncompatible, "a state of another size than this stage's");
  const Version version{offer.version()};
  if (!fetch_ || fetch_->version != version) {
    ++fetches_;
    fetch_.emplace(
        Fetch{.version = version, .pieces = PieceFetch(offer.bytes(), hashes), .hashes = hashes});
    if (progress_ != kFetching) become(kFetching);
    hooks_.on_offered(version);
  }
  for (const wire::GroupMember& holder : offer.holders()) {
    const Seat seat = from_wire(holder.seat());
    context_.links.set_address(seat, holder.address());
    fetch_->pieces.add_holder(seat);
  }
  if (initial) {
    load({});
  } else if (kept_ && kept_->version == version && kept_->bytes.size() == offer.bytes()) {
    become(kComparing);
    compare(std::exchange(kept_, nullptr), 0);
  } else {
    pump();
  }
  return {};
}

// Nobody else has the state: there is nothing to compare it with.
void StateExchange::begin_with_kept(Version version) {
  if (!kept_ || kept_->version != version || kept_->bytes.size() != context_.state.saved_bytes())
    return want();
  SWARMLINE_MARK("state.begins_with_what_it_kept");
  log(LogLevel::kInfo, "{}: nobody else has version {}; it begins with its own copy",
      to_string(context_.self), version.value);
  ++fetches_;
  fetch_.emplace(
      Fetch{.version = version, .pieces = PieceFetch(0), .origin = StateOrigin::kOwnCopy});
  hooks_.on_offered(version);
  load(std::move(std::exchange(kept_, nullptr)->bytes));
}

void StateExchange::compare(const std::shared_ptr<KeptState>& kept, std::size_t piece) {
  if (piece == fetch_->hashes.size()) {
    SWARMLINE_MARK("state.kept_one_reused");
    log(LogLevel::kInfo, "{}: it kept version {}, nothing is fetched", to_string(context_.self),
        kept->version.value);
    return load(std::move(kept->bytes));
  }
  auto same = std::make_shared<bool>(false);
  jobs_.run(
      [kept, piece, hash = fetch_->hashes[piece], same]() -> Result<void> {
        *same = sha256_hex(kept->piece(piece)) == hash;
        return {};
      },
      [this, kept, piece, same, fetch = fetches_] {
        if (progress_ != kComparing || fetch != fetches_) return;
        if (*same) return compare(kept, piece + 1);
        SWARMLINE_MARK("state.kept_one_differs");
        log(LogLevel::kWarn, "{}: the version {} that it kept is not its mates'",
            to_string(context_.self), kept->version.value);
        become(kFetching);
        pump();
      });
}

// ---- Fetching it --------------------------------------------------------------------------------

void StateExchange::ask(const PieceFetch::Ask& ask) {
  fetch_->asked = context_.runtime.now();
  fetch_->pieces.asked(ask.holder, fetch_->asked);
  wire::PieceRequest request;
  *request.mutable_seat() = to_wire(context_.self);
  request.mutable_blob()->set_stage(context_.self.stage.value);
  request.set_piece(ask.piece);
  if (is_saved()) {
    request.mutable_blob()->set_saved(fetch_->version.value);
    context_.notify_coordinator(make_frame(MessageKind::kPieceRequest, request));
  } else {
    request.mutable_blob()->set_state(fetch_->version.value);
    *request.mutable_to() = to_wire(ask.holder);
    context_.links.send(ask.holder, make_frame(MessageKind::kPieceRequest, request));
  }
}

void StateExchange::pump() {
  if (progress_ != kFetching || fetch_->resting) return;
  for (const PieceFetch::Ask& wanted : fetch_->pieces.asks(shadow_ ? 1 : hooks_.asks_max()))
    ask(wanted);
  if (!fetch_->watched) watch_holders();
  if (fetch_->pieces.stuck() && !fetch_->paused) on_stuck();
}

void StateExchange::on_committed_since() {
  if (progress_ == kFetching && !fetch_->loading_parameters) load_without_version_before();
}

bool StateExchange::load_without_version_before() {
  const std::uint64_t committed = context_.state.committed_state_bytes();
  if (fetch_->origin != StateOrigin::kMates || fetch_->pieces.bytes() <= committed ||
      !fetch_->pieces.has_first(committed) || !hooks_.is_behind())
    return false;
  SWARMLINE_MARK("state.version_before_done_without");
  Buffer state = fetch_->pieces.take();
  state.shrink(committed);
  load(std::move(state));
  return true;
}

// The pieces that follow lie behind them.
void StateExchange::load_parameters() {
  if (shadow_ || fetch_->origin != StateOrigin::kMates || fetch_->loading_parameters ||
      fetch_->has_parameters || fetch_->pieces.done() ||
      !fetch_->pieces.has_first(context_.state.parameter_bytes()) ||
      !hooks_.parameters_serve(fetch_->version))
    return;
  SWARMLINE_MARK("state.parameters_first");
  fetch_->loading_parameters = true;
  const Version version = fetch_->version;
  jobs_.run(
      [this, version, bytes = fetch_->pieces.so_far()]() -> Result<void> {
        context_.state.load_parameters(version,
                                       bytes->bytes().first(context_.state.parameter_bytes()));
        return {};
      },
      [this, version, fetch = fetches_] {
        if (!fetch_ || fetch != fetches_) return;
        fetch_->loading_parameters = false;
        fetch_->has_parameters = true;
        hooks_.on_parameters_here(version);
        if (fetch_->pieces.done()) load(fetch_->pieces.take());
      });
}

// A link may be gone without a word, and what was asked over it with it.
void StateExchange::watch_holders() {
  fetch_->watched = true;
  context_.runtime.call_after(knobs().piece_time / kLooks, guard_.wrap([this, fetch = fetches_] {
    if (!fetch_ || fetch != fetches_ || progress_ == kLoading) return;
    fetch_->pieces.drop_late(context_.runtime.now());
    pump();
    watch_holders();
  }));
}

void StateExchange::on_stuck() {
  const bool damaged = fetch_->pieces.damaged(), late = fetch_->pieces.late();
  if (is_saved() && !damaged && !late)
    return context_.fail({ErrorCode::kIncompatible,
                          fmt::format("the coordinator's checkpoint of version {} does not fit "
                                      "this stage",
                                      fetch_->version.value)});
  if (damaged && ++fetch_->damaged_times > knobs().fetch_tries_max)
    return context_.fail({ErrorCode::kCorrupt,
                          fmt::format("version {} of this stage's parameters came damaged {} times",
                                      fetch_->version.value, knobs().fetch_tries_max)});
  fetch_->paused = true;
  context_.runtime.call_after(knobs().state_retry, guard_.wrap([this, version = fetch_->version] {
    if (fetch_ && fetch_->version == version) after_pause();
  }));
}

void StateExchange::after_pause() {
  fetch_->paused = false;
  if (!fetch_->pieces.stuck()) return;
  if (fetch_->pieces.forgive_damaged()) {
    SWARMLINE_MARK("state.damaged_pieces_asked_again");
    return pump();
  }
  if (fetch_->pieces.forgive_late()) return pump();
  // Nobody has it any more: the coordinator has another frozen, if it does not know already.
  SWARMLINE_MARK("state.wanted_anew");
  hooks_.on_lost();
  want();
}

void StateExchange::on_piece(const Seat& from, const wire::Piece& piece, BytesView bytes) {
  if (!fetch_ || progress_ == kLoading || piece.blob().has_saved() != is_saved() ||
      (piece.blob().has_saved() ? piece.blob().saved() : piece.blob().state()) !=
          fetch_->version.value ||
      piece.blob().stage() != context_.self.stage.value)
    return;
  if (piece.missing())
    fetch_->pieces.on_missing(from);
  else if (fetch_->pieces.on_piece(from, piece.piece(), bytes, piece.checksum()))
    fetch_->damaged_times = 0;
  load_parameters();
  if (fetch_->loading_parameters && fetch_->pieces.done()) return;
  if (fetch_->pieces.done())
    load(fetch_->pieces.take());
  else if (!load_without_version_before())
    shadow_ ? rest_and_pump() : pump();
}

void StateExchange::rest_and_pump() {
  if (std::exchange(fetch_->resting, true)) return;
  const Duration took = context_.runtime.now() - fetch_->asked;
  context_.runtime.call_after(std::min(took, knobs().rest_max),
                              guard_.wrap([this, version = fetch_->version] {
                                if (!fetch_ || fetch_->version != version) return;
                                fetch_->resting = false;
                                pump();
                              }));
}

void StateExchange::on_link_lost(const Seat& peer) {
  if (!fetch_) return;
  fetch_->pieces.on_link_lost(peer);
  pump();
}

void StateExchange::on_peer_lost(const Seat& lost) {
  if (!fetch_) return;
  fetch_->pieces.on_lost(lost);
  pump();
}

// ---- Loading it ---------------------------------------------------------------------------------

void StateExchange::load(Buffer state) {
  become(kLoading);
  const Version version = fetch_->version;
  for (const auto& [peer, pieces] : fetch_->pieces.pieces_by_holder())
    log(LogLevel::kInfo, "{}: {} pieces of version {} from peer {}", to_string(context_.self),
        pieces, version.value, peer.value);
  auto bytes = std::make_shared<Buffer>(std::move(state));
  // Version 0 is the one before, too.
  const bool all_in_use = version.value == 0 || bytes->size() == context_.state.saved_bytes();
  auto digest = std::make_shared<std::uint64_t>();
  jobs_.run(
      [this, bytes, digest, version]() -> Result<void> {
        if (bytes->size() > 0) SWARMLINE_TRY(context_.state.load(version, bytes->bytes()));
        auto made = context_.state.digest();
        if (!made) return std::unexpected(std::move(made).error());
        *digest = *made;
        return {};
      },
      [this, digest, version, all_in_use, origin = fetch_->origin, fetch = fetches_] {
        // Too far behind meanwhile: another one is wanted.
        if (progress_ != kLoading || fetch != fetches_) return;
        fetch_.reset();
        become(kHere);
        hooks_.on_here(version, *digest, origin, all_in_use);
      });
}

void StateExchange::check_invariants() const {
  SWARMLINE_CHECK(fetch_.has_value() == (progress_ != kHere && progress_ != kWanted));
  if (fetch_ && progress_ == kFetching)
    SWARMLINE_CHECK(!fetch_->pieces.done() || fetch_->loading_parameters);
}

}  // namespace swarmline
