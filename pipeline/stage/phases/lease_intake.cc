#include "pipeline/stage/phases/lease_intake.h"

#include <numeric>
#include <utility>

#include "base/check.h"
#include "pipeline/protocol/message_kinds.h"

namespace swarmline {

namespace {

std::uint32_t total_peers(const RunConfig& config) {
  return std::accumulate(config.pipeline.peers.begin(), config.pipeline.peers.end(), 0U);
}

// In a fixed order every source has its share of the step at once, so that leases go round.
std::uint32_t window_of(const RunConfig& config) {
  const std::uint32_t sources = config.pipeline.peers.front();
  const std::uint32_t share = (config.microbatches_per_step() + sources - 1) / sources;
  const bool fixed = config.pipeline.order != OrderKind::kFree && config.pipeline.in_flight == 0;
  return window_for(fixed ? share : config.pipeline.in_flight, total_peers(config), sources);
}

}  // namespace

LeaseIntake::LeaseIntake(StageContext& context, std::unique_ptr<MicrobatchSource> source)
    : context_(context), source_(std::move(source)), window_(window_of(context.config)) {}

void LeaseIntake::want() {
  if (!source_ || window_.total_wanted() <= wanted_) return;
  wanted_ = window_.total_wanted();
  wire::WantLeases want;
  *want.mutable_seat() = to_wire(context_.self);
  want.set_total(wanted_);
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

void LeaseIntake::check_invariants() const {
  SWARMLINE_CHECK(leased_ <= wanted_ && wanted_ <= window_.total_wanted());
}

}  // namespace swarmline
