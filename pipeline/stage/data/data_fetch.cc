#include "pipeline/stage/data/data_fetch.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/marks.h"
#include "pipeline/protocol/data_messages.h"
#include "pipeline/protocol/knobs.h"
#include "pipeline/protocol/message_kinds.h"

namespace swarmline {

namespace {
constexpr int kLooksForLateHolders = 4;  // for late holders, in the time that one has
}  // namespace

DataFetch::DataFetch(StageContext& context, DataFolder* folder,
                     std::shared_ptr<const DataPieces> pieces, std::function<void()> on_here)
    : context_(context),
      folder_(pieces ? folder : nullptr),
      pieces_(std::move(pieces)),
      on_here_(std::move(on_here)),
      had_(on() ? pieces_->count() : 0) {}

bool DataFetch::is(std::uint32_t piece, State state) const {
  const auto wanted = wanted_.find(piece);
  return wanted != wanted_.end() && wanted->second == state;
}

// ---- Which pieces -------------------------------------------------------------------------------

std::set<std::uint32_t> DataFetch::chosen(const std::vector<Pieces>& microbatches,
                                          const Pieces& ahead) {
  const std::size_t room = std::min<std::size_t>(folder_->bytes_max() / kDataPieceBytes, kInUseMax);
  std::set<std::uint32_t> chosen;
  for (const Pieces& pieces : microbatches) {
    std::set<std::uint32_t> with = chosen;
    with.insert(pieces.begin(), pieces.end());
    if (!chosen.empty() && with.size() > room) break;
    chosen = std::move(with);
  }
  const bool all_here =
      std::ranges::all_of(chosen, [this](std::uint32_t piece) { return is(piece, State::kHere); });
  for (const std::uint32_t piece : ahead) {
    if (chosen.size() >= room) break;
    if (all_here || wanted_.contains(piece)) chosen.insert(piece);
  }
  for (const auto& [piece, state] : wanted_) {
    if (chosen.size() >= room) break;
    if (state == State::kHere) chosen.insert(piece);
  }
  return chosen;
}

void DataFetch::need(const std::vector<Pieces>& microbatches, const Pieces& ahead) {
  if (!on()) return;
  const std::set<std::uint32_t> wanted = chosen(microbatches, ahead);
  for (auto at = wanted_.begin(); at != wanted_.end();) {
    if (!wanted.contains(at->first)) {
      asks_.want_no_more(at->first);
      at = wanted_.erase(at);
    } else {
      ++at;
    }
  }
  folder_->use_only(wanted);
  for (const std::uint32_t piece : wanted)
    if (!wanted_.contains(piece)) begin(piece);
}

bool DataFetch::here(const Pieces& pieces) const {
  return std::ranges::all_of(pieces,
                             [this](std::uint32_t piece) { return is(piece, State::kHere); });
}

// ---- Their hashes -------------------------------------------------------------------------------

void DataFetch::begin(std::uint32_t piece) {
  wanted_[piece] = State::kWaiting;
  const std::uint32_t block = piece / kDataHashesOfBlock;
  const auto [hashes, is_new] = hashes_.try_emplace(block);
  if (is_new) ask_for_hashes(block);
  if (!hashes->second.empty()) look(piece);
}

void DataFetch::ask_for_hashes(std::uint32_t block) const {
  wire::WantHashes want;
  *want.mutable_seat() = to_wire(context_.self);
  want.set_block(block);
  context_.notify_coordinator(make_frame(MessageKind::kWantHashes, want));
}

void DataFetch::on_coordinator_back() {
  for (const auto& [block, hashes] : hashes_)
    if (hashes.empty()) ask_for_hashes(block);
}

Result<void> DataFetch::on_hashes(const wire::DataHashes& hashes) {
  const auto block = hashes_.find(hashes.block());
  if (block == hashes_.end() || !block->second.empty()) return {};
  const std::uint32_t first = hashes.block() * kDataHashesOfBlock;
  const std::uint32_t count = std::min(kDataHashesOfBlock, pieces_->count() - first);
  if (hashes.hashes().size() != count * kHashDigits)
    return fail(ErrorCode::kCorrupt, "hashes of another number of pieces than the run's data has");
  block->second = hashes.hashes();
  look_for_those_that_wait();
  return {};
}

std::string DataFetch::hash_of(std::uint32_t piece) const {
  return hashes_.at(piece / kDataHashesOfBlock)
      .substr(piece % kDataHashesOfBlock * kHashDigits, kHashDigits);
}

// ---- From the folder, or from others ------------------------------------------------------------

void DataFetch::look_for_those_that_wait() {
  std::vector<std::uint32_t> waiting;
  for (const auto& [piece, state] : wanted_) {
    if (looks_ + waiting.size() >= kLooksMax) break;
    if (state == State::kWaiting && !hashes_.at(piece / kDataHashesOfBlock).empty())
      waiting.push_back(piece);
  }
  for (const std::uint32_t piece : waiting)
    if (is(piece, State::kWaiting)) look(piece);
}

void DataFetch::look(std::uint32_t piece) {
  if (looks_ >= kLooksMax) return;  // in its turn
  ++looks_;
  wanted_[piece] = State::kLooked;
  folder_->find({.number = piece, .sha256 = hash_of(piece)},
                guard_.wrap([this, piece](const Result<bool>& found) {
                  if (looks_-- == kLooksMax) look_for_those_that_wait();
                  if (!is(piece, State::kLooked)) return;
                  if (!found) return context_.fail(found.error());
                  if (*found) return came(piece);
                  wanted_[piece] = State::kAsked;
                  asks_.want(piece);
                  pump();
                }));
}

void DataFetch::came(std::uint32_t piece) {
  wanted_[piece] = State::kHere;
  waits_said_ = false;
  if (!had_[piece]) {
    had_[piece] = true;
    ++had_count_;
    say_progress();
  }
  on_here_();
}

void DataFetch::pump() {
  for (const PieceAsks::Ask& wanted : asks_.asks(kAskedMax)) ask(wanted);
  if (asks_.outstanding() > 0 && !watched_) watch();
  if (asks_.stuck() && !paused_) on_stuck();
}

void DataFetch::ask(const PieceAsks::Ask& ask) {
  asks_.asked(ask.holder, context_.runtime.now());
  std::set<std::uint32_t>& owed = owed_[ask.holder];
  owed.insert(ask.piece);
  if (owed.size() > kOwedMax) owed.erase(owed.begin());
  wire::PieceRequest request;
  *request.mutable_seat() = to_wire(context_.self);
  *request.mutable_to() = to_wire(ask.holder);
  request.mutable_blob()->set_data(true);
  request.set_piece(ask.piece);
  context_.links.send(ask.holder, make_frame(MessageKind::kPieceRequest, request));
}

// A link may be gone without a word, and what was asked over it with it.
void DataFetch::watch() {
  watched_ = true;
  context_.runtime.call_after(knobs().piece_time / kLooksForLateHolders, guard_.wrap([this] {
    watched_ = false;
    if (asks_.outstanding() == 0) return;
    asks_.drop_late(context_.runtime.now());
    pump();
  }));
}

void DataFetch::on_stuck() {
  if (!std::exchange(waits_said_, true))
    log(LogLevel::kWarn,
        "{}: nobody gives it the run's data now; it waits for a peer that has it ({} of {} pieces "
        "have been here)",
        to_string(context_.self), had_count_, pieces_->count());
  if (!asks_.any_damaged() && !asks_.any_late()) return;  // on_holders() goes on
  paused_ = true;
  context_.runtime.call_after(knobs().state_retry, guard_.wrap([this] { after_pause(); }));
}

void DataFetch::after_pause() {
  paused_ = false;
  if (!asks_.stuck()) return;
  if (asks_.forgive_damaged() || asks_.forgive_late()) {
    SWARMLINE_MARK("data_fetch.asked_again");
    pump();
  }
}

void DataFetch::on_holders(const wire::DataHolders& holders) {
  if (!on()) return;
  for (const wire::GroupMember& holder : holders.holders()) {
    const Seat seat = from_wire(holder.seat());
    if (seat.peer == context_.self.peer) continue;
    context_.links.set_address(seat, holder.address());
    asks_.add_holder(seat);
  }
  pump();
}

// ---- What comes ---------------------------------------------------------------------------------

Result<void> DataFetch::on_piece(const Seat& from, const wire::Piece& piece, BytesView bytes) {
  const auto owed = owed_.find(from);
  if (!on() || owed == owed_.end() || owed->second.erase(piece.piece()) == 0) {
    SWARMLINE_MARK("data_fetch.not_asked_for");
    return fail(ErrorCode::kCorrupt, "a piece of data that was not asked for");
  }
  const std::uint64_t length = pieces_->place(piece.piece()).bytes;
  if (bytes.size() > length) {
    SWARMLINE_MARK("data_fetch.longer_than_it_is");
    return fail(ErrorCode::kCorrupt,
                fmt::format("a piece of data with {} bytes, which has {}", bytes.size(), length));
  }
  if (!asks_.takes(from, piece.piece()) || !is(piece.piece(), State::kAsked)) return {};
  if (piece.missing() || bytes.size() != length || xxh3(bytes) != piece.checksum()) {
    asks_.damaged(from, piece.piece());
    pump();
    return {};
  }
  wanted_[piece.piece()] = State::kChecked;
  folder_->keep({.number = piece.piece(), .sha256 = hash_of(piece.piece())},
                SharedBytes(Buffer::copy_of(bytes)),
                guard_.wrap([this, from, number = piece.piece()](const Result<bool>& kept) {
                  judged(from, number, kept);
                }));
  return {};
}

void DataFetch::judged(const Seat& from, std::uint32_t piece, const Result<bool>& kept) {
  if (!kept) return context_.fail(kept.error());
  if (!*kept) {
    SWARMLINE_MARK("data_fetch.wrong_piece");
    ++wrong_;
    if (context_.metrics != nullptr)
      context_.metrics->counter("swarmline_wrong_data_pieces_total").add();
    asks_.wrong(from, piece);
    if (is(piece, State::kChecked)) wanted_[piece] = State::kAsked;
    if (const auto times = wrong_lines_.happened(context_.runtime.now()))
      log(LogLevel::kWarn, "{}: piece {} of the run's data from {} is another{} ({} such)",
          to_string(context_.self), piece, to_string(from),
          asks_.is_refused(from) ? "; it is asked no more" : "", times);
    return pump();
  }
  asks_.here(from, piece);
  from_ = from.peer;
  if (is(piece, State::kChecked) || is(piece, State::kAsked)) came(piece);
  pump();
}

void DataFetch::on_link_lost(const Seat& peer) {
  if (!on()) return;
  asks_.on_link_lost(peer);
  pump();
}

void DataFetch::on_peer_lost(const Seat& lost) {
  if (!on()) return;
  std::erase_if(owed_, [&](const auto& owed) { return is_over_with(owed.first, lost); });
  asks_.forget(lost);
  pump();
}

// ---- For people ---------------------------------------------------------------------------------

void DataFetch::say_progress() {
  const Instant now = context_.runtime.now();
  const bool all = had_count_ == pieces_->count();
  if (!all && progress_said_ != Instant{} && now - progress_said_ < kProgressEvery) return;
  progress_said_ = now;
  log(LogLevel::kInfo, "{} fetches its data from peer {}: {} of {} pieces",
      to_string(context_.self), from_.value, had_count_, pieces_->count());
}

std::optional<wire::DataProgress> DataFetch::progress() const {
  if (!on()) return std::nullopt;
  wire::DataProgress progress;
  progress.set_pieces(had_count_);
  progress.set_of(pieces_->count());
  progress.set_from(from_.value);
  progress.set_wrong(wrong_);
  return progress;
}

void DataFetch::check_invariants() const {
  for (const auto& [piece, state] : wanted_)
    SWARMLINE_CHECK((state == State::kAsked || state == State::kChecked) == asks_.wants(piece));
  for (const auto& [holder, owed] : owed_) SWARMLINE_CHECK(owed.size() <= kOwedMax);
  SWARMLINE_CHECK(looks_ <= kLooksMax);
}

}  // namespace swarmline
