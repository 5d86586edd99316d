// The end of a step at one member: seal, average, fetch what the averaging here can't end with,
// commit.
#include <algorithm>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/hash.h"
#include "base/limits.h"
#include "base/log.h"
#include "pipeline/protocol/knobs.h"
#include "pipeline/stage/seat/seated_stage.h"

namespace swarmline {

namespace {

wire::BlobId blob_of(const RoundKey& key) {
  wire::BlobId blob;
  wire::ReducedId* reduced = blob.mutable_reduced();
  *reduced->mutable_phase() = to_wire(key.phase);
  reduced->set_group(key.group.value);
  reduced->set_attempt(key.attempt.value);
  return blob;
}

RoundKey key_of(const wire::ReducedId& reduced) {
  return {from_wire(reduced.phase()), GroupId{reduced.group()}, RoundAttempt{reduced.attempt()}};
}

}  // namespace

bool SeatedStage::has_group(GroupId group) const {
  return groups_.has(group) && groups_.contains(group, context_.self.stage);
}

SeatedStage::Region SeatedStage::region_of(GroupId group) const {
  const std::uint64_t width = size_bytes(model_->layout().dtype);
  const GroupPlan::Region region = groups_.region_of(group, model_->layout());
  return {region.first * width, region.elements * width};
}

// ---- Seal and reopen ----------------------------------------------------------------------------

Result<void> SeatedStage::on_seal(const wire::Seal& seal) {
  const Phase phase = from_wire(seal.phase());
  if (phase.kind != PhaseKind::kTrain || phase.step != committed_.value ||
      phases_.microbatches(phase) == 0)
    return fail(ErrorCode::kCorrupt, to_string(phase) + " can't be sealed now");
  std::set<std::uint32_t> owned;
  for (const wire::Range& range : seal.owned()) {
    const std::uint64_t end = std::uint64_t{range.first()} + range.count();
    if (range.count() == 0 || end > config_.microbatches_per_step() ||
        owned.contains(range.first()))
      return fail(ErrorCode::kCorrupt, "a seal with indices that the step does not have");
    for (std::uint32_t i = 0; i < range.count(); ++i) owned.insert(range.first() + i);
  }
  for (const wire::ReduceGroup& group : seal.groups())
    if (!has_group(GroupId{group.group()}))
      return fail(ErrorCode::kIncompatible, "a seal names a group that this peer is not in");
  sealing_ = true;
  sealing_phase_ = phase;
  phases_.seal(phase);
  flow_.drop(phase);
  // The barrier lets jobs of the phase that are on the device end, so that what they added is
  // known.
  control([]() -> Result<void> { return {}; },
          [this, phase, seal, owned, reign = reign_] {
            if (reign != reign_) return contributions_.unreserve_all(phase);
            contributions_.settle(phase, owned,
                                  [this, seal, reign](Result<std::vector<std::uint32_t>> missing) {
                                    if (reign != reign_) return;
                                    if (!missing) return context_.fail(missing.error());
                                    settled(seal, *missing);
                                  });
          });
  return {};
}

void SeatedStage::settled(const wire::Seal& seal, const std::vector<std::uint32_t>& missing) {
  if (missing.empty()) return sealed(seal);
  control(
      [this, step = seal.phase().step()]() -> Result<void> {
        state_.begin(step);
        return {};
      },
      [this, seal, missing, reign = reign_] {
        // What is left of it is computed again, by whoever has room.
        contributions_.forget(from_wire(seal.phase()));
        if (reign != reign_) return;
        wire::SealMismatch mismatch;
        *mismatch.mutable_seat() = to_wire(context_.self);
        *mismatch.mutable_phase() = seal.phase();
        for (std::uint32_t index : missing) mismatch.add_missing(index);
        context_.notify_coordinator(make_frame(MessageKind::kSealMismatch, mismatch));
        sealing_ = false;
        drain_inbox();
      });
}

void SeatedStage::sealed(const wire::Seal& seal) {
  const Phase phase = from_wire(seal.phase());
  std::erase_if(digests_, [&](const auto& entry) { return entry.first.phase != phase; });
  for (const wire::ReduceGroup& group : seal.groups()) {
    std::erase_if(digests_, [&](const auto& e) { return e.first.group == GroupId{group.group()}; });
    std::erase_if(fetches_, [&](const auto& e) {
      return e.first.phase == phase && e.first.group == GroupId{group.group()};
    });
    start_round(phase, group);
  }
  sealing_ = false;
  drain_inbox();
}

// The stages named take contributions again; whatever they were averaging had the lost seat as a
// member.
Result<void> SeatedStage::on_reopen(const wire::Reopen& reopen) {
  const Phase phase = from_wire(reopen.phase());
  if (phase.kind != PhaseKind::kTrain || phase.step != committed_.value ||
      phases_.microbatches(phase) == 0)
    return fail(ErrorCode::kCorrupt, to_string(phase) + " can't be reopened now");
  phases_.reopen(phase, PhaseEpoch{reopen.opening()});
  const bool adds = std::find(reopen.stages().begin(), reopen.stages().end(),
                              context_.self.stage.value) != reopen.stages().end();
  if (adds) {
    averager_.abandon(phase);
    contributions_.reopen(phase);
  }
  control([]() -> Result<void> { return {}; }, [this, phase] { activate(phase); });
  return {};
}

// ---- Averaging ----------------------------------------------------------------------------------

void SeatedStage::start_round(const Phase& phase, const wire::ReduceGroup& group) {
  const ParameterLayout& layout = model_->layout();
  const Region region = region_of(GroupId{group.group()});
  StageAverager::Round round;
  round.key = {phase, GroupId{group.group()}, RoundAttempt{group.attempt()}};
  bool member_of_it = false;
  for (const wire::GroupMember& member : group.members()) {
    const Seat seat = from_wire(member.seat());
    if (seat == context_.self) {
      round.spec.rank = static_cast<std::uint32_t>(round.members.size());
      member_of_it = true;
    }
    context_.links.set_address(seat, member.address());
    round.members.push_back(seat);
  }
  if (!member_of_it)
    return context_.fail(
        {ErrorCode::kIncompatible, "a seal names a group that this peer is not in"});
  round.spec.ranks = static_cast<std::uint32_t>(round.members.size());
  round.spec.elements = region.size / size_bytes(layout.dtype);
  round.spec.dtype = layout.dtype;
  round.spec.bounds.assign(group.slice_ends().begin(), group.slice_ends().end());
  round.spec.bounds.insert(round.spec.bounds.begin(), 0);
  round.input = BytesView(state_.accumulator(phase.step)).subspan(region.first, region.size);
  round.output = state_.reduced().subspan(region.first, region.size);
  averaging_codecs_.set_up(round, region.first);
  const RoundKey key = round.key;
  round.on_done = [this, key](std::uint64_t bytes) { reduced(key, bytes); };
  if (auto started = averager_.start(std::move(round)); !started) context_.fail(started.error());
}

void SeatedStage::reduced(const RoundKey& key, std::uint64_t bytes_sent) {
  const Region region = region_of(key.group);
  const BytesView bytes = BytesView(state_.reduced()).subspan(region.first, region.size);
  auto message = std::make_shared<wire::Reduced>();
  control(
      [message, bytes, dtype = model_->layout().dtype]() -> Result<void> {
        message->set_digest(xxh3(bytes));
        message->set_sum_of_squares(sum_of_squares(bytes, dtype));
        return {};
      },
      [this, message, key, bytes_sent] {
        if (key.phase.step == committed_.value) report_reduced(key, bytes_sent, message);
      });
}

void SeatedStage::report_reduced(const RoundKey& key, std::uint64_t bytes_sent,
                                 std::shared_ptr<wire::Reduced> message) {
  digests_[key] = message->digest();
  *message->mutable_seat() = to_wire(context_.self);
  *message->mutable_phase() = to_wire(key.phase);
  message->set_group(key.group.value);
  message->set_attempt(key.attempt.value);
  message->set_reduce_bytes(bytes_sent);
  if (!groups_.is_shared(key.group)) {
    std::uint64_t busy_ns = 0;
    flow_.take_account(key.phase, *message->mutable_boundary(), busy_ns);
    message->set_busy_ns(busy_ns);
    message->set_contributions(contributions_.count(key.phase));
  }
  context_.notify_coordinator(make_frame(MessageKind::kReduced, *message));
}

// ---- Fetching what others have ------------------------------------------------------------------

Result<void> SeatedStage::on_fetch(const wire::FetchReduced& message) {
  const RoundKey key{from_wire(message.phase()), GroupId{message.group()},
                     RoundAttempt{message.attempt()}};
  if (key.phase.kind != PhaseKind::kTrain || key.phase.step != committed_.value ||
      !has_group(key.group))
    return fail(ErrorCode::kCorrupt, to_string(key.phase) + " can't be fetched now");
  // Its report and this question have crossed: who holds it may let go of it now.
  if (const auto mine = digests_.find(key);
      mine != digests_.end() && mine->second == message.digest())
    return {};
  averager_.abandon(key.phase, key.group);
  std::vector<Seat> holders;
  for (const wire::GroupMember& holder : message.holders()) {
    holders.push_back(from_wire(holder.seat()));
    context_.links.set_address(holders.back(), holder.address());
  }
  digests_.erase(key);
  fetch(key, message.digest(), holders, true);
  return {};
}

void SeatedStage::fetch(const RoundKey& key, std::uint64_t digest, const std::vector<Seat>& holders,
                        bool report) {
  const std::uint64_t size = region_of(key.group).size;
  auto [entry, first] = fetches_.try_emplace(key, ReducedFetch{.pieces = PieceFetch(size),
                                                               .digest = digest,
                                                               .size = size,
                                                               .report = report,
                                                               .tries = 1});
  entry->second.report |= report;
  for (const Seat& holder : holders) {
    entry->second.named.insert(holder);
    entry->second.pieces.add_holder(holder);
  }
  pump_fetch(key);
}

void SeatedStage::pump_fetch(const RoundKey& key) {
  const auto entry = fetches_.find(key);
  if (entry == fetches_.end()) return;
  if (entry->second.pieces.stuck()) return wait_for_holder(key);
  for (const PieceFetch::Ask& ask : entry->second.pieces.asks()) {
    wire::PieceRequest request;
    *request.mutable_blob() = blob_of(key);
    request.set_piece(ask.piece);
    context_.links.send(ask.holder, make_frame(MessageKind::kPieceRequest, request));
  }
}

// Nobody we know has it, or nobody's comes whole: a moment later that may be otherwise. Before the
// commit it is the coordinator's deadline that ends this, or the other way that it names.
void SeatedStage::wait_for_holder(const RoundKey& key) {
  if (std::exchange(fetches_.at(key).waiting, true)) return;
  std::weak_ptr<SeatedStage*> weak = alive_;
  context_.runtime.call_after(knobs().refetch_delay, [weak, key] {
    auto self = weak.lock();
    if (!self || !(*self)->fetches_.contains(key)) return;
    SeatedStage& stage = **self;
    ReducedFetch& fetch = stage.fetches_.at(key);
    fetch.waiting = false;
    const bool committed = std::ranges::any_of(stage.commits_, [&](const wire::Commit& commit) {
      return commit.step() == key.phase.step;
    });
    const bool mates_have_it = committed || !fetch.report;
    if (mates_have_it && !stage.mates_.empty() && ++fetch.tries > knobs().fetch_tries_max)
      return stage.context_.fail(
          {ErrorCode::kNotFound,
           fmt::format("no mate keeps the reduced gradient of {} any more", to_string(key.phase))});
    fetch.pieces.forgive_damaged();
    fetch.pieces.forgive();
    for (const Seat& holder : fetch.named) fetch.pieces.add_holder(holder);
    if (mates_have_it)
      for (const auto& [peer, mate] : stage.mates_) fetch.pieces.add_holder(mate);
    stage.pump_fetch(key);
  });
}

BytesView SeatedStage::reduced_bytes(const RoundKey& key) const {
  const Region region = region_of(key.group);
  if (digests_.contains(key))
    return BytesView(const_cast<ParameterState&>(state_).reduced())
        .subspan(region.first, region.size);
  if (retained_keys_.contains(key))
    return retained_.at(key.phase.step).view().subspan(region.first, region.size);
  return {};
}

bool SeatedStage::holds(const wire::BlobId& blob) const {
  if (blob.has_state())
    return frozen_ && blob.state() == frozen_->version && blob.stage() == stage().value;
  return blob.has_reduced() && has_group(GroupId{blob.reduced().group()}) &&
         !reduced_bytes(key_of(blob.reduced())).empty();
}

Result<void> SeatedStage::on_piece_request(const Seat& from, const wire::PieceRequest& request) {
  wire::Piece reply;
  *reply.mutable_blob() = request.blob();
  reply.set_piece(request.piece());
  BytesView bytes;
  if (request.blob().has_state() && holds(request.blob())) {
    bytes = frozen_->bytes.view();
    frozen_used_ = context_.runtime.now();
  }
  if (request.blob().has_reduced() && has_group(GroupId{request.blob().reduced().group()}))
    bytes = reduced_bytes(key_of(request.blob().reduced()));
  const std::uint64_t first = std::uint64_t{request.piece()} * Limits::state_piece_bytes;
  if (first >= bytes.size()) {
    reply.set_missing(true);
    context_.links.send(from, make_frame(MessageKind::kPiece, reply));
    return {};
  }
  const SharedBytes piece(Buffer::copy_of(bytes.subspan(
      first, std::min<std::uint64_t>(Limits::state_piece_bytes, bytes.size() - first))));
  reply.set_checksum(xxh3(piece.view()));
  context_.links.send(from, make_frame(MessageKind::kPiece, reply, {piece}));
  return {};
}

Result<void> SeatedStage::on_piece(const Seat& from, const Frame& frame) {
  auto piece = parse<wire::Piece>(frame);
  if (!piece) return std::unexpected(piece.error());
  if (piece->blob().has_state() || piece->blob().has_saved()) {
    on_state_piece(from, *piece, frame.received_payload());
    return {};
  }
  const RoundKey key = key_of(piece->blob().reduced());
  const auto entry = fetches_.find(key);
  if (entry == fetches_.end() || entry->second.pieces.done()) return {};  // late
  if (piece->missing())
    entry->second.pieces.on_missing(from);
  else
    entry->second.pieces.on_piece(from, piece->piece(), frame.received_payload(),
                                  piece->checksum());
  if (entry->second.pieces.done())
    fetched(key);
  else
    pump_fetch(key);
  return {};
}

void SeatedStage::fetched(const RoundKey& key) {
  ReducedFetch& entry = fetches_.at(key);
  auto bytes = std::make_shared<Buffer>(entry.pieces.take());
  auto digest = std::make_shared<std::uint64_t>();
  control(
      [bytes, digest]() -> Result<void> {
        *digest = xxh3(bytes->bytes());
        return {};
      },
      [this, key, bytes, digest] {
        const auto entry = fetches_.find(key);
        if (entry == fetches_.end()) return;  // not needed any more
        if (*digest == entry->second.digest) {
          const bool report = entry->second.report;
          fetches_.erase(entry);
          fetched_[key] = std::move(*bytes);
          if (report && key.phase.step == committed_.value) use_fetched(key);
          return advance_commits();
        }
        // Each piece was right and the whole is not: somebody holds something else.
        if (++entry->second.tries > knobs().fetch_tries_max)
          return context_.fail({ErrorCode::kCorrupt,
                                fmt::format("the reduced gradient of {} can't be fetched: what the "
                                            "others hold is not what was committed",
                                            to_string(key.phase))});
        entry->second.pieces = PieceFetch(entry->second.size);
        for (const auto& [peer, mate] : mates_) entry->second.pieces.add_holder(mate);
        pump_fetch(key);
      });
}

// Into the place where an averaging of its own would have put it.
void SeatedStage::use_fetched(const RoundKey& key) {
  auto bytes = std::make_shared<Buffer>(std::move(fetched_.extract(key).mapped()));
  placing_.insert(key);
  std::erase_if(digests_, [&](const auto& entry) { return entry.first.phase != key.phase; });
  const Region region = region_of(key.group);
  auto message = std::make_shared<wire::Reduced>();
  control(
      [this, bytes, region, message]() -> Result<void> {
        const MutableBytes place = state_.reduced().subspan(region.first, region.size);
        std::copy(bytes->bytes().begin(), bytes->bytes().end(), place.begin());
        message->set_digest(xxh3(place));
        message->set_sum_of_squares(sum_of_squares(place, model_->layout().dtype));
        return {};
      },
      [this, key, message] {
        placing_.erase(key);
        if (key.phase.step == committed_.value) report_reduced(key, 0, message);
        advance_commits();
      });
}

// ---- Commit -------------------------------------------------------------------------------------

Result<void> SeatedStage::on_commit(const wire::Commit& commit) {
  if (commit.again() && commit.step() < committed_.value + commits_.size()) return {};
  if (commit.step() != committed_.value + commits_.size())
    return fail(ErrorCode::kIncompatible,
                fmt::format("commit of step {} on version {}", commit.step(), committed_.value));
  const double corrections[] = {commit.bias_correction1(), commit.bias_correction2()};
  for (double correction : corrections)
    if (!commit.skipped() && !(correction > 0 && correction <= 1))
      return fail(ErrorCode::kCorrupt, "a commit with a bias correction outside (0, 1]");
  commits_.push_back(commit);
  if (commit.again()) name_attempts(commits_.back());
  advance_commits();
  return {};
}

void SeatedStage::advance_commits() {
  while (loaded_ && !commits_.empty()) {
    const wire::Commit& commit = commits_.front();
    bool here = true;
    for (const wire::GroupDigest& group : commit.groups()) {
      if (commit.skipped() || !has_group(GroupId{group.group()})) continue;
      const RoundKey key{{PhaseKind::kTrain, commit.step()},
                         GroupId{group.group()},
                         RoundAttempt{group.attempt()}};
      const auto mine = digests_.find(key);
      if (mine != digests_.end() && mine->second == group.digest()) continue;
      here = false;
      // What the coordinator waited for it does not any more: it names no other holders.
      if (const auto asked = fetches_.find(key);
          asked != fetches_.end() && std::exchange(asked->second.report, false))
        fetch(key, group.digest(), mates(), false);
      if (fetched_.contains(key)) {
        use_fetched(key);
      } else if (fetches_.contains(key)) {
        pump_fetch(key);  // it may have waited for the coordinator's word
      } else if (!placing_.contains(key)) {
        log(LogLevel::kInfo, "{}: fetching the reduced gradient of {}", to_string(context_.self),
            to_string(key.phase));
        fetch(key, group.digest(), mates(), false);
      }
    }
    if (!here) return;
    apply(commit);
    commits_.pop_front();
  }
  drain_inbox();
}

void SeatedStage::apply(const wire::Commit& commit) {
  const Phase phase{PhaseKind::kTrain, commit.step()};
  averager_.retire(phase);
  averaging_codecs_.on_commit(commit.skipped());
  contributions_.retire(phase);
  phases_.retire(phase);
  flow_.drop(phase);
  wire::BoundaryBytes unreported;
  std::uint64_t busy_ns = 0;
  flow_.take_account(phase, unreported, busy_ns);
  committed_ = Version{commit.step() + 1};
  std::erase_if(fetches_, [&](const auto& e) { return e.first.phase.step <= commit.step(); });
  std::erase_if(fetched_, [&](const auto& e) { return e.first.phase.step <= commit.step(); });
  if (commit.keep() && !commit.skipped()) {
    auto copy = std::make_shared<Buffer>();
    std::map<RoundKey, std::uint64_t> keys = digests_;
    control(
        [this, copy]() -> Result<void> {
          *copy = Buffer::copy_of(state_.reduced());
          return {};
        },
        [this, copy, keys, step = commit.step()] {
          retained_[step] = SharedBytes(std::move(*copy));
          for (const auto& [key, digest] : keys)
            if (key.phase.step == step) retained_keys_[key] = digest;
        });
  }
  auto old = [&](std::uint64_t step) { return step + kRetainedSteps <= commit.step(); };
  std::erase_if(retained_keys_, [&](const auto& e) { return old(e.first.phase.step); });
  std::erase_if(retained_, [&](const auto& e) { return old(e.first); });

  auto digest = std::make_shared<std::uint64_t>();
  const StepScalars scalars{.learning_rate = commit.learning_rate(),
                            .clip_scale = commit.clip_scale(),
                            .bias_correction1 = commit.bias_correction1(),
                            .bias_correction2 = commit.bias_correction2()};
  control(
      [this, scalars, skipped = commit.skipped(), digest]() -> Result<void> {
        SWARMLINE_TRY(state_.apply(scalars, skipped));
        auto made = state_.digest();
        if (!made) return std::unexpected(std::move(made).error());
        *digest = *made;
        return {};
      },
      [this, digest, version = committed_] {
        if (following_ && version == committed_) return say_ready(*digest);
        reached_ = {version.value, *digest};
        wire::Stepped stepped;
        *stepped.mutable_seat() = to_wire(context_.self);
        stepped.set_version(version.value);
        stepped.set_state_digest(*digest);
        context_.notify_coordinator(make_frame(MessageKind::kStepped, stepped));
      });
}

}  // namespace swarmline
