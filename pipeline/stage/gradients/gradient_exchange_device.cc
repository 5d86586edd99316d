// Rounds whose values are in a device's memory: encoded there, summed between devices, or of one
// member alone.
#include <algorithm>
#include <memory>
#include <utility>

#include "base/log.h"
#include "base/marks.h"
#include "pipeline/protocol/message_kinds.h"
#include "pipeline/stage/gradients/gradient_exchange.h"

namespace swarmline {

using enum GradientState;

// Residuals are in one place: the host's, where members of islands read and write them.
bool GradientExchange::reads_sums(const SealedGroup& group) const {
  if (context_.state.gradients() == nullptr) return true;
  if (!group.fabrics.empty()) {
    for (std::size_t rank = 0; rank < group.members.size(); ++rank)
      if (group.members[rank].seat == context_.self && rank < group.fabrics.size() &&
          group.fabrics[rank] != FabricKind::kNone)
        return false;
  }
  const bool islands = context_.config.net.islands != Islands::kNone;
  if (!group.speakers.empty() || (islands && codecs_.feeds_back())) return true;
  return group.members.size() > 1 && !device_rounds_.takes_values();
}

void GradientExchange::begin_round(StageAverager::Round round, const SealedGroup& group) {
  if (reads_sums(group)) return start(std::move(round));
  if (!group.fabrics.empty()) return begin_island(std::move(round), group);
  if (round.spec.ranks == 1) return begin_alone(round.key);
  const std::uint64_t first = region_of(group.group).first;
  begin_from_device(std::move(round),
                    [this, step = round.key.phase.step, first]() -> Result<DeviceAddress> {
                      auto sums = context_.state.sums_there(step);
                      if (sums) *sums += first;
                      return sums;
                    });
}

void GradientExchange::begin_from_device(StageAverager::Round round, DeviceRounds::Values values) {
  if (auto fits = StageAverager::check(round); !fits) return context_.fail(fits.error());
  averager_.leave_out_checksums(round);
  const std::uint64_t first = region_of(round.key.group).first;
  device_rounds_.begin(std::move(round), first, std::move(values),
                       [this](StageAverager::Round ready, ParameterState::Bring landing) {
                         landings_[ready.key] = std::move(landing);
                         start(std::move(ready));
                       });
}

// ---- One member alone ---------------------------------------------------------------------------

void GradientExchange::begin_alone(const RoundKey& key) {
  SWARMLINE_MARK("gradients.alone_on_a_device");
  const Region region = region_of(key.group);
  landings_[key] = [bring = device_rounds_.alone(key, region.first, region.size),
                    copy = host_copy(key)](DeviceAddress there) -> Result<void> {
    SWARMLINE_TRY(bring(there));
    return copy(there);
  };
  summed(key, 0);
}

// Mates may ask for it.
ParameterState::Bring GradientExchange::host_copy(const RoundKey& key) {
  return [this, region = region_of(key.group)](DeviceAddress there) {
    return context_.state.device()->fetch(
        context_.state.reduced().subspan(region.first, region.size), there);
  };
}

ParameterState::Bring GradientExchange::take_landing(const RoundKey& key) {
  auto landing = landings_.extract(key);
  return landing.empty() ? ParameterState::Bring() : std::move(landing.mapped());
}

void GradientExchange::drop_rounds(const std::function<bool(const RoundKey&)>& which) {
  device_rounds_.drop(which);
  island_rounds_.drop(which);
  std::erase_if(spoken_for_, [&](const auto& round) { return which(round.first); });
  std::erase_if(landings_, [&](const auto& landing) { return which(landing.first); });
}

// ---- Islands past links -------------------------------------------------------------------------

namespace {

// Of this member's island: who speaks is the first of two at least, and no more than there is room
// for.
bool fits_fabrics(const StageAverager::Round& round, const std::vector<FabricKind>& fabrics) {
  if (!round.islands || fabrics.size() != round.members.size()) return false;
  const auto& [own, speakers] = *round.islands;
  const std::uint32_t speaker = speakers[own];
  if (speakers[speaker] != speaker ||
      std::ranges::find(speakers, speaker) != speakers.begin() + speaker)
    return false;
  const auto members = static_cast<std::uint64_t>(std::ranges::count(speakers, speaker));
  return members >= 2 && members <= kFabricRanksMax && round.spec.elements >= members * members;
}

}  // namespace

// Whoever speaks averages with the others when its island's sum is there.
void GradientExchange::begin_island(StageAverager::Round round, const SealedGroup& group) {
  const RoundKey key = round.key;
  const auto own = static_cast<std::size_t>(std::ranges::find(round.members, context_.self) -
                                            round.members.begin());
  if (!fits_fabrics(round, group.fabrics))
    return context_.fail(
        {ErrorCode::kIncompatible, "a seal names fabrics that do not fit its members"});
  const IslandRanks ranks = *std::exchange(round.islands, std::nullopt);
  IslandRounds::Island island{
      .kind = group.fabrics[own], .meeting = group.meeting, .is_all = round.spec.ranks == 1};
  std::vector<Seat> speaking;
  for (std::uint32_t rank = 0; rank < round.members.size(); ++rank) {
    if (ranks.speaks(rank)) speaking.push_back(round.members[rank]);
    if (ranks.speakers[rank] != ranks.speakers[own]) continue;
    if (rank == own) island.own = static_cast<std::uint32_t>(island.members.size());
    island.members.push_back(round.members[rank]);
  }
  const Region region = region_of(key.group);
  const IslandRounds::Region of = {
      .first = region.first, .elements = round.spec.elements, .dtype = round.spec.dtype};
  round.members = std::move(speaking);
  if (island.own == 0 && !island.is_all) spoken_for_[key] = std::move(round);
  island_rounds_.begin(key, std::move(island), of, key.phase.step);
}

void GradientExchange::island_summed(const RoundKey& key) {
  auto waiting = spoken_for_.extract(key);
  if (waiting.empty()) return;
  StageAverager::Round& round = waiting.mapped();
  const Region region = region_of(key.group);
  const auto sum = [this, region]() -> Result<DeviceAddress> {
    auto island = context_.state.device()->arena(DeviceArena::kIsland);
    if (island) *island += region.first;
    return island;
  };
  if (device_rounds_.takes_values()) return begin_from_device(std::move(round), sum);
  auto whole = std::make_shared<StageAverager::Round>(std::move(round));
  jobs_.run(
      [this, key, region, sum]() -> Result<void> {
        const auto there = sum();
        if (!there) return std::unexpected(there.error());
        return context_.state.device()->fetch(
            context_.state.accumulator(key.phase.step).subspan(region.first, region.size), *there);
      },
      [this, key, whole] {
        if (state_of(key) == kAveraging) start(std::move(*whole));
      });
}

// The coordinator has it tried again, over links.
void GradientExchange::fabric_failed(const RoundKey& key, const Error& error) {
  log(LogLevel::kWarn, "{}: an average of {} could not go from GPU to GPU: {}",
      to_string(context_.self), to_string(key.phase), error.what);
  wire::RoundBroken broken;
  *broken.mutable_seat() = to_wire(context_.self);
  *broken.mutable_beyond() = to_wire(context_.self);
  *broken.mutable_phase() = to_wire(key.phase);
  broken.set_group(key.group.value);
  broken.set_attempt(key.attempt.value);
  broken.set_fabric(true);
  context_.notify_coordinator(make_frame(MessageKind::kRoundBroken, broken));
}

Result<void> GradientExchange::on_fabric_word(const Seat& from, const Frame& frame) {
  return island_rounds_.on_word(from, frame);
}

}  // namespace swarmline
