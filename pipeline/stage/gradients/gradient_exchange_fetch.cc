// Averaged gradients that come from members that hold them.
#include <algorithm>
#include <memory>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/marks.h"
#include "kernels/digest.h"
#include "pipeline/protocol/knobs.h"
#include "pipeline/stage/gradients/gradient_exchange.h"

namespace swarmline {

using enum GradientState;

RoundKey round_key(const wire::ReducedId& reduced) {
  return {from_wire(reduced.phase()), GroupId{reduced.group()}, RoundAttempt{reduced.attempt()}};
}

// ---- Who may have it ----------------------------------------------------------------------------

GradientFetch::Holders GradientExchange::mates() const {
  GradientFetch::Holders holders;
  for (const auto& [peer, mate] : mates_) holders[mate] = mate;
  return holders;
}

void GradientExchange::set_mates(const std::vector<Seat>& mates) {
  mates_.clear();
  for (const Seat& mate : mates) mates_[mate.peer] = mate;
  for (auto& [key, entry] : entries_)
    if (entry.fetch && !entry.fetch->coordinator_waits) entry.fetch->add_mates(mates_);
  pump_all();
}

void GradientExchange::on_link_lost(const Seat& peer) {
  late_.erase(peer);
  for (auto& [key, entry] : entries_)
    if (entry.fetch) entry.fetch->pieces().on_link_lost(peer);
  pump_all();
}

void GradientExchange::on_peer_lost(const Seat& lost) {
  island_rounds_.on_peer_lost(lost);
  std::erase_if(mates_, [&](const auto& entry) { return is_over_with(entry.second, lost); });
  std::erase_if(late_, [&](const Seat& mate) { return is_over_with(mate, lost); });
  for (auto& [key, entry] : entries_)
    if (entry.fetch) entry.fetch->on_peer_lost(lost);
  pump_all();
}

// ---- Asking -------------------------------------------------------------------------------------

void GradientExchange::on_fetch(const RoundKey& key, std::uint64_t digest,
                                const GradientFetch::Holders& holders) {
  // Its report and this question have crossed: who holds it may let go of it now.
  const auto mine = entries_.find(key);
  const GradientState state = state_of(key);
  if (in_place(state) && mine->second.digest == digest) return;
  SWARMLINE_MARK("gradients.fetched_instead_of_averaged");
  averager_.abandon(key.phase, key.group);
  drop_rounds([&](const RoundKey& other) { return other == key; });
  fetch(key, digest, holders, true);
}

void GradientExchange::fetch(const RoundKey& key, std::uint64_t digest,
                             const GradientFetch::Holders& holders, bool coordinator_waits) {
  const auto entry = entries_.try_emplace(key).first;
  if (entry->second.state == kChecked || entry->second.state == kPlacing) return;
  if (entry->second.state != kFetching) become(entry, kFetching);
  if (!entry->second.fetch) {
    entry->second.fetch.emplace(region_of(key.group).size, digest);
    watch_holders(key);
  }
  entry->second.fetch->coordinator_waits |= coordinator_waits;
  entry->second.fetch->add_holders(holders);
  for (const Seat& mate : late_) entry->second.fetch->pieces().leave(mate);
  pump(key);
}

void GradientExchange::pump(const RoundKey& key) {
  const auto entry = entries_.find(key);
  if (entry == entries_.end() || !entry->second.fetch) return;
  GradientFetch& fetch = *entry->second.fetch;
  if (fetch.pieces().stuck()) return pause(key);
  for (const PieceFetch::Ask& ask : fetch.pieces().asks()) {
    wire::PieceRequest request;
    *request.mutable_seat() = to_wire(context_.self);
    *request.mutable_to() = to_wire(fetch.who_has_it(ask.holder));
    wire::ReducedId* reduced = request.mutable_blob()->mutable_reduced();
    *reduced->mutable_phase() = to_wire(key.phase);
    reduced->set_group(key.group.value);
    reduced->set_attempt(key.attempt.value);
    request.set_piece(ask.piece);
    context_.links.send(ask.holder, make_frame(MessageKind::kPieceRequest, request));
    fetch.pieces().asked(ask.holder, context_.runtime.now());
  }
}

// Other gradients are asked of others, too, where somebody else has them.
void GradientExchange::leave_alone(const std::vector<Seat>& late) {
  late_.insert(late.begin(), late.end());
  for (auto& [key, entry] : entries_)
    if (entry.fetch)
      for (const Seat& mate : late) entry.fetch->pieces().leave(mate);
  pump_all();
}

// A link may be gone without a word, and what was asked over it with it. (Of two fetches of one
// key, one after the other, both look.)
void GradientExchange::watch_holders(const RoundKey& key) {
  constexpr int kLooks = 4;  // in the time that a holder has
  context_.runtime.call_after(knobs().piece_time / kLooks, guard_.wrap([this, key] {
    const auto entry = entries_.find(key);
    if (entry == entries_.end() || !entry->second.fetch) return;
    const auto late = entry->second.fetch->pieces().drop_late(context_.runtime.now());
    if (!late.empty()) leave_alone(late);
    watch_holders(key);
  }));
}

void GradientExchange::pump_all() {
  std::vector<RoundKey> keys;
  for (const auto& [key, entry] : entries_)
    if (entry.fetch) keys.push_back(key);
  for (const RoundKey& key : keys) pump(key);
}

// Nobody we know has it, or nobody's comes whole: a moment later that may be otherwise. Before the
// commit it is the coordinator's deadline that ends this, or the other way that it names.
void GradientExchange::pause(const RoundKey& key) {
  if (std::exchange(entries_.at(key).fetch->paused, true)) return;
  context_.runtime.call_after(knobs().refetch_delay,
                              guard_.wrap([this, key] { after_pause(key); }));
}

void GradientExchange::after_pause(const RoundKey& key) {
  const auto entry = entries_.find(key);
  if (entry == entries_.end() || !entry->second.fetch) return;
  SWARMLINE_MARK("gradients.holders_asked_again");
  GradientFetch& fetch = *entry->second.fetch;
  fetch.paused = false;
  const bool mates_have_it = !fetch.coordinator_waits;
  // Who is only out of reach has it, for all that is known: it answers one day, or is lost.
  const bool nobody_has_it = !mates_.empty() && !fetch.pieces().late();
  if (mates_have_it && nobody_has_it && !fetch.count_try())
    return context_.fail(
        {ErrorCode::kNotFound,
         fmt::format("no mate keeps the reduced gradient of {} any more", to_string(key.phase))});
  fetch.try_again();
  if (mates_have_it) fetch.add_mates(mates_);
  pump(key);
}

// ---- What comes ---------------------------------------------------------------------------------

Result<void> GradientExchange::on_piece(const Seat& from, const wire::Piece& piece,
                                        BytesView bytes) {
  late_.erase(from);
  const RoundKey key = round_key(piece.blob().reduced());
  const auto entry = entries_.find(key);
  if (entry == entries_.end() || !entry->second.fetch) return {};  // late
  PieceFetch& pieces = entry->second.fetch->pieces();
  if (pieces.done()) return {};
  if (piece.missing())
    pieces.on_missing(from);
  else
    pieces.on_piece(from, piece.piece(), bytes, piece.checksum());
  if (pieces.done())
    all_pieces_here(key);
  else
    pump(key);
  return {};
}

void GradientExchange::all_pieces_here(const RoundKey& key) {
  auto bytes = std::make_shared<Buffer>(entries_.at(key).fetch->pieces().take());
  auto digest = std::make_shared<std::uint64_t>();
  jobs_.run(
      [bytes, digest]() -> Result<void> {
        *digest = kernels::digest(bytes->bytes());
        return {};
      },
      [this, key, bytes, digest] { checked(key, std::move(*bytes), *digest); });
}

void GradientExchange::checked(const RoundKey& key, Buffer bytes, std::uint64_t digest) {
  const auto entry = entries_.find(key);
  if (entry == entries_.end() || !entry->second.fetch) return;  // not needed any more
  GradientFetch& fetch = *entry->second.fetch;
  if (digest == fetch.digest()) {
    const bool report_now = fetch.coordinator_waits && key.phase.step == next_step_;
    if (entry->second.state == kBoth) {
      become(entry, kHeld);
      if (report_now) hash(key, 0);
      return hooks_.on_here();
    }
    become(entry, kChecked);
    entry->second.fetched = std::move(bytes);
    if (report_now) place(key);
    return hooks_.on_here();
  }
  // Each piece was right and the whole is not: somebody holds something else.
  SWARMLINE_MARK("gradients.wrong_whole_fetched_again");
  if (!fetch.count_try())
    return context_.fail(
        {ErrorCode::kCorrupt, fmt::format("the reduced gradient of {} can't be fetched: what the "
                                          "others hold is not what was committed",
                                          to_string(key.phase))});
  fetch.start_over(mates_);
  pump(key);
}

// Where an averaging of its own would have put it.
void GradientExchange::place(const RoundKey& key) {
  begin(key.phase);
  take_place(key);
  // An island's round works in that place on the device.
  island_rounds_.drop([&](const RoundKey& other) { return other.group == key.group; });
  const auto entry = entries_.find(key);
  auto bytes = std::make_shared<Buffer>(std::exchange(entry->second.fetched, Buffer()));
  become(entry, kPlacing);
  const Region region = region_of(key.group);
  auto message = std::make_shared<wire::Reduced>();
  jobs_.run(
      [this, bytes, region, message]() -> Result<void> {
        const MutableBytes place = context_.state.reduced().subspan(region.first, region.size);
        std::copy(bytes->bytes().begin(), bytes->bytes().end(), place.begin());
        return summarize(region, {}, *message);
      },
      [this, key, message] {
        if (key.phase.step == next_step_)
          report(key, 0, *message);
        else if (state_of(key) == kPlacing)
          become(entries_.find(key), kNone);
        hooks_.on_here();
      });
}

}  // namespace swarmline
