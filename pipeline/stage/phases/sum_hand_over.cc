#include "pipeline/stage/phases/sum_hand_over.h"

#include <algorithm>
#include <set>

#include "base/check.h"
#include "base/log.h"
#include "base/marks.h"
#include "engine/checkpoint/sha256.h"
#include "pipeline/protocol/knobs.h"
#include "pipeline/protocol/message_kinds.h"

namespace swarmline {

// ---- The giver ----------------------------------------------------------------------------------

Result<void> SumHandOver::on_give(const wire::GiveSums& give) {
  const Phase phase = from_wire(give.phase());
  if (phase.kind != PhaseKind::kTrain)
    return fail(ErrorCode::kCorrupt, to_string(phase) + " has no sums");
  if (const auto given = given_.find(phase); given != given_.end()) {
    if (given->second->ready) say_frozen(phase, given->second.get());  // to another taker
    return {};
  }
  if (!contributions_.may_give(phase)) {
    SWARMLINE_MARK("hand_over.still_adding");
    say_frozen(phase, nullptr);
    return {};
  }
  SWARMLINE_MARK("hand_over.gives");
  contributions_.give(phase);
  copy_sums(phase, given_.emplace(phase, std::make_shared<Copy>()).first->second);
  return {};
}

void SumHandOver::copy_sums(const Phase& phase, const std::shared_ptr<Copy>& copy) {
  auto sums = std::make_shared<Buffer>();
  jobs_.run(
      [this, step = phase.step, sums]() -> Result<void> {
        SWARMLINE_TRY(context_.state.collect(step));
        *sums = Buffer::copy_of(context_.state.accumulator(step));
        return {};
      },
      [this, phase, copy, sums] {
        copy->bytes = SharedBytes(std::move(*sums));
        hash_next(phase, copy);
      });
}

void SumHandOver::hash_next(const Phase& phase, const std::shared_ptr<Copy>& copy) {
  const auto given = given_.find(phase);
  if (given == given_.end() || given->second != copy) return;  // it is sealed, or over
  const std::uint64_t first = copy->hashes.size() * knobs().state_piece_bytes;
  if (first >= copy->bytes.size()) {
    copy->ready = true;
    return say_frozen(phase, copy.get());
  }
  const std::uint64_t size =
      std::min<std::uint64_t>(knobs().state_piece_bytes, copy->bytes.size() - first);
  auto hash = std::make_shared<std::string>();
  jobs_.run(
      [copy, first, size, hash]() -> Result<void> {
        *hash = sha256_hex(copy->bytes.view().subspan(first, size));
        return {};
      },
      [this, phase, copy, hash] {
        copy->hashes.push_back(*hash);
        hash_next(phase, copy);
      });
}

void SumHandOver::say_frozen(const Phase& phase, const Copy* copy) {
  wire::SumsFrozen frozen;
  *frozen.mutable_seat() = to_wire(context_.self);
  *frozen.mutable_phase() = to_wire(phase);
  if (copy != nullptr) {
    wire::PhaseHoldings held;
    *held.mutable_phase() = to_wire(phase);
    contributions_.list(held);
    *frozen.mutable_contributions() = held.reported();
    frozen.set_bytes(copy->bytes.size());
    for (const std::string& hash : copy->hashes) frozen.add_hashes(hash);
  }
  context_.notify_coordinator(make_frame(MessageKind::kSumsFrozen, frozen));
}

BytesView SumHandOver::bytes(const Phase& phase) const {
  const auto given = given_.find(phase);
  return given == given_.end() || !given->second->ready ? BytesView() : given->second->bytes.view();
}

// All of it is in another's sums: here they begin from nothing.
void SumHandOver::forget_given(const Phase& phase) {
  given_.erase(phase);
  jobs_.run(
      [this, step = phase.step]() -> Result<void> {
        context_.state.begin(step);
        return {};
      },
      [this, phase] {
        if (contributions_.gives(phase)) contributions_.forget(phase);
      });
}

// It was in doubt: another coordinator says whose it is.
bool SumHandOver::on_ack(const wire::ReportAck& ack) {
  const Phase phase = from_wire(ack.phase());
  if (!contributions_.gives(phase)) return false;
  if (ack.refused().empty()) {
    given_.erase(phase);
    contributions_.keep(phase);
    return true;
  }
  SWARMLINE_MARK("hand_over.the_taker_has_it");
  if (ack.accepted().empty()) {
    forget_given(phase);
    return true;
  }
  context_.fail({ErrorCode::kIncompatible,
                 to_string(phase) + ": a part of what this peer gave is another's now"});
  return true;
}

// ---- The taker ----------------------------------------------------------------------------------

Result<void> SumHandOver::check(const wire::TakeSums& take) const {
  const Phase phase = from_wire(take.phase());
  const Seat giver = from_wire(take.giver().seat());
  const std::uint64_t bytes = context_.state.layout().bytes();
  const std::uint64_t pieces = (bytes + knobs().state_piece_bytes - 1) / knobs().state_piece_bytes;
  std::set<std::uint32_t> indices;
  for (const wire::Contribution& contribution : take.contributions())
    if (contribution.index() >= context_.config.microbatches_per_step() ||
        !indices.insert(contribution.index()).second)
      return fail(ErrorCode::kCorrupt, "sums of microbatches that the step does not have");
  if (phase.kind != PhaseKind::kTrain || indices.empty() || giver.stage != context_.self.stage ||
      giver.peer == context_.self.peer || take.bytes() != bytes ||
      static_cast<std::uint64_t>(take.hashes_size()) != pieces)
    return fail(ErrorCode::kCorrupt, to_string(phase) + ": these are no sums of this stage");
  return {};
}

Result<void> SumHandOver::on_take(const wire::TakeSums& take) {
  SWARMLINE_TRY(check(take));
  const Phase phase = from_wire(take.phase());
  const Seat giver = from_wire(take.giver().seat());
  const Key key{phase, giver.peer};
  drop(key);  // it begins anew
  // Who waits for its turn here may be lost meanwhile, and nobody says so again.
  if (context_.links.fenced(giver)) {
    SWARMLINE_MARK("hand_over.giver_is_gone");
    return {};
  }
  if (taking_.size() >= kTakingMax || phases_.microbatches(phase) == 0 ||
      !contributions_.expect(phase, take.contributions())) {
    SWARMLINE_MARK("hand_over.refused");
    say_taken(phase, giver, true);
    return {};
  }
  Taking taking{.giver = giver,
                .contributions = take.contributions(),
                .pieces = PieceFetch(take.bytes(), {take.hashes().begin(), take.hashes().end()})};
  context_.links.set_address(giver, take.giver().address());
  taking.pieces.add_holder(giver);
  taking_.emplace(key, std::move(taking));
  pump(key);
  return {};
}

void SumHandOver::pump(const Key& key) {
  const auto entry = taking_.find(key);
  if (entry == taking_.end()) return;
  Taking& taking = entry->second;
  if (taking.pieces.stuck()) return ask_again(key);
  for (const PieceFetch::Ask& ask : taking.pieces.asks()) {
    wire::PieceRequest request;
    *request.mutable_seat() = to_wire(context_.self);
    *request.mutable_to() = to_wire(taking.giver);
    *request.mutable_blob()->mutable_sums() = to_wire(key.first);
    request.set_piece(ask.piece);
    context_.links.send(ask.holder, make_frame(MessageKind::kPieceRequest, request));
    taking.pieces.asked(ask.holder, context_.runtime.now());
  }
}

// Nobody else has it: a moment later its giver may be in reach. When it goes, this ends.
void SumHandOver::ask_again(const Key& key) {
  context_.runtime.call_after(knobs().refetch_delay,
                              guard_.wrap([this, key, giver = taking_.at(key).giver] {
                                const auto entry = taking_.find(key);
                                if (entry == taking_.end() || entry->second.giver != giver) return;
                                PieceFetch& pieces = entry->second.pieces;
                                if (!pieces.stuck()) return;
                                SWARMLINE_MARK("hand_over.asked_again");
                                pieces.forgive_damaged();
                                pieces.forgive_late();
                                pieces.forgive();
                                pieces.add_holder(giver);
                                pump(key);
                              }));
}

void SumHandOver::on_piece(const Seat& from, const wire::Piece& piece, BytesView bytes) {
  const Key key{from_wire(piece.blob().sums()), from.peer};
  const auto entry = taking_.find(key);
  if (entry == taking_.end() || entry->second.giver != from) return;  // late
  Taking& taking = entry->second;
  if (taking.pieces.done()) return;
  if (piece.missing())
    taking.pieces.on_missing(from);
  else
    taking.pieces.on_piece(from, piece.piece(), bytes, piece.checksum());
  if (!taking.pieces.done()) return pump(key);
  taking.told = true;
  say_taken(key.first, taking.giver, false);
}

void SumHandOver::say_taken(const Phase& phase, const Seat& giver, bool refused) {
  wire::SumsTaken taken;
  *taken.mutable_seat() = to_wire(context_.self);
  *taken.mutable_phase() = to_wire(phase);
  *taken.mutable_giver() = to_wire(giver);
  taken.set_refused(refused);
  context_.notify_coordinator(make_frame(MessageKind::kSumsTaken, taken));
}

void SumHandOver::drop(const Key& key) {
  const auto entry = taking_.find(key);
  if (entry == taking_.end()) return;
  SWARMLINE_MARK("hand_over.dropped");
  contributions_.expect_no_more(key.first, entry->second.contributions);
  taking_.erase(entry);
}

// ---- They move ----------------------------------------------------------------------------------

Result<void> SumHandOver::on_moved(const wire::SumsMoved& moved) {
  const Phase phase = from_wire(moved.phase());
  const Seat giver = from_wire(moved.giver());
  const Key key{phase, giver.peer};
  if (giver == context_.self) {
    if (moved.has_taker() && contributions_.gives(phase)) forget_given(phase);
    return {};
  }
  const auto entry = taking_.find(key);
  if (!moved.has_taker()) {
    drop(key);
    return {};
  }
  if (from_wire(moved.taker()) != context_.self || entry == taking_.end() ||
      entry->second.giver != giver || !entry->second.told)
    return fail(ErrorCode::kCorrupt, to_string(phase) + ": sums that are not here are said to be");
  Taking taking = std::move(entry->second);
  taking_.erase(entry);
  adopt(phase, std::move(taking));
  return {};
}

void SumHandOver::adopt(const Phase& phase, Taking taking) {
  SWARMLINE_MARK("hand_over.adopted");
  contributions_.adopt(phase, taking.contributions);
  jobs_.run(
      [this, step = phase.step, sums = SharedBytes(taking.pieces.take())]() -> Result<void> {
        context_.state.adopt_sums(step, sums);
        return {};
      },
      [] {});
}

// ---- Losses and ends ----------------------------------------------------------------------------

void SumHandOver::on_coordinator_lost() {
  while (!taking_.empty()) drop(taking_.begin()->first);
}

void SumHandOver::on_link_lost(const Seat& peer) {
  std::vector<Key> asked;
  for (auto& [key, taking] : taking_) {
    if (taking.giver != peer) continue;
    taking.pieces.on_link_lost(peer);
    asked.push_back(key);
  }
  for (const Key& key : asked) pump(key);
}

void SumHandOver::on_peer_lost(const Seat& lost) {
  std::vector<Key> gone;
  for (const auto& [key, taking] : taking_)
    if (is_over_with(taking.giver, lost)) gone.push_back(key);
  for (const Key& key : gone) drop(key);
}

void SumHandOver::end(const Phase& phase) {
  given_.erase(phase);
  std::erase_if(taking_, [&](const auto& entry) { return entry.first.first == phase; });
}

void SumHandOver::check_invariants() const {
  SWARMLINE_CHECK(taking_.size() <= kTakingMax);
  for (const auto& [phase, copy] : given_) SWARMLINE_CHECK(contributions_.gives(phase));
  for (const auto& [key, taking] : taking_)
    SWARMLINE_CHECK(taking.told == taking.pieces.done() && !contributions_.gives(key.first));
}

}  // namespace swarmline
