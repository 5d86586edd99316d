#include "pipeline/stage/phases/lease_intake.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/marks.h"
#include "pipeline/protocol/message_kinds.h"

namespace swarmline {

namespace {

// In a fixed order every source has its share of the step at once, so that leases go round.
std::uint32_t window_of(const RunConfig& config) {
  const PipelineSection& pipeline = config.pipeline;
  if (pipeline.in_flight > 0) return pipeline.in_flight;
  const std::uint32_t sources = pipeline.peers.front();
  if (pipeline.order != OrderKind::kFree)
    return (config.microbatches_per_step() + sources - 1) / sources;
  if (pipeline.wiring == WiringKind::kStatic) return window_for(pipeline);
  return kWindowOfTheFast * window_for(pipeline);
}

}  // namespace

LeaseIntake::LeaseIntake(StageContext& context, std::unique_ptr<MicrobatchSource> source,
                         DataFetch& data)
    : context_(context),
      data_(data),
      source_(std::move(source)),
      window_(window_of(context.config)) {}

void LeaseIntake::want() {
  if (!source_) return;
  const bool fixed = context_.config.pipeline.wiring == WiringKind::kStatic;
  const Slowdown& slowdown = context_.queue.slowdown();
  const std::uint64_t may_have = fixed || !slowdown.is_slow()
                                     ? window_.size()
                                     : slowdown.may_have(window_for(context_.config.pipeline));
  const std::uint64_t total = window_.total_wanted(may_have);
  if (total <= wanted_ && window_.finished() == told_finished_) return;
  wanted_ = std::max(wanted_, total);
  told_finished_ = window_.finished();
  wire::WantLeases want;
  *want.mutable_seat() = to_wire(context_.self);
  want.set_total(wanted_);
  want.set_finished(told_finished_);
  context_.notify_coordinator(make_frame(MessageKind::kWantLeases, want));
}

Result<void> LeaseIntake::take(std::uint64_t leases) {
  if (!source_) return fail(ErrorCode::kCorrupt, "leases for a peer that is no source");
  if (leased_ + leases > wanted_)
    return fail(ErrorCode::kCorrupt, "more leases than were asked for");
  leased_ += leases;
  return {};
}

Result<LeaseIntake::Data> LeaseIntake::read(const MicrobatchId& id) {
  const std::uint64_t count =
      std::uint64_t{context_.config.batch.microbatch} * context_.spec.sequence;
  Buffer tokens(count * sizeof(std::int32_t));
  Buffer targets(count * sizeof(std::int32_t));
  SWARMLINE_TRY(source_->read(id, tokens.as<std::int32_t>(), targets.as<std::int32_t>()));
  return Data{.tokens = SharedBytes(std::move(tokens)), .targets = SharedBytes(std::move(targets))};
}

// ---- Data that is fetched -----------------------------------------------------------------------

bool LeaseIntake::hold(const AttemptId& attempt, PhaseEpoch epoch, const std::string& stage_mask) {
  const MicrobatchId& id = attempt.microbatch;
  Held held{.attempt = attempt,
            .epoch = epoch,
            .stage_mask = stage_mask,
            .pieces = source_->pieces_of(id)};
  if (held.pieces.empty()) return false;
  SWARMLINE_MARK("leases.held_for_data");
  if (id.phase.kind == PhaseKind::kTrain && (!furthest_ || *furthest_ < id)) furthest_ = id;
  held_.push_back(std::move(held));
  return true;
}

bool LeaseIntake::holds(const AttemptId& attempt) const {
  return std::ranges::any_of(held_, [&](const Held& held) { return held.attempt == attempt; });
}

std::vector<LeaseIntake::Held> LeaseIntake::take_ready() {
  return drop([this](const Held& held) { return data_.here(held.pieces); });
}

std::vector<LeaseIntake::Held> LeaseIntake::drop(const std::function<bool(const Held&)>& over) {
  std::vector<Held> dropped;
  std::deque<Held> left;
  for (Held& held : held_)
    over(held) ? dropped.push_back(std::move(held)) : left.push_back(std::move(held));
  held_ = std::move(left);
  return dropped;
}

void LeaseIntake::fetch() {
  if (!data_.on()) return;
  std::vector<DataFetch::Pieces> needed;
  needed.reserve(held_.size());
  for (const Held& held : held_) needed.push_back(held.pieces);
  data_.need(needed, ahead());
}

// Leases go round the sources, in the order of the indices.
DataFetch::Pieces LeaseIntake::ahead() const {
  DataFetch::Pieces pieces;
  if (!furthest_) return pieces;
  MicrobatchId next = *furthest_;
  for (std::uint32_t i = 0; i < kAhead; ++i) {
    if (++next.index == context_.config.microbatches_per_step()) {
      ++next.phase.step;
      next.index = 0;
    }
    if (next.phase.step >= context_.config.run.steps) break;
    const DataFetch::Pieces of_next = source_->pieces_of(next);
    pieces.insert(pieces.end(), of_next.begin(), of_next.end());
  }
  return pieces;
}

void LeaseIntake::check_invariants() const {
  SWARMLINE_CHECK(leased_ <= wanted_ && wanted_ <= window_.total_wanted());
}

}  // namespace swarmline
