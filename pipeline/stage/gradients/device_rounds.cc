#include "pipeline/stage/gradients/device_rounds.h"

#include <utility>

#include "base/check.h"
#include "base/marks.h"

namespace swarmline {

bool DeviceRounds::takes_values() const {
  const DeviceGradients* const gradients = context_.state.gradients();
  return gradients != nullptr && gradients->encodes(codecs_.codec());
}

void DeviceRounds::begin(Round round, std::uint64_t first, Values values,
                         std::function<void(Round, Bring)> start) {
  SWARMLINE_MARK("device_rounds.begun");
  const RoundKey key = round.key;
  auto sums = std::make_shared<Sums>();
  rounds_[key] = sums;
  const SliceChunks chunks = chunks_of(round.spec);
  sums->spec = round.spec;
  sums->residual = round.residual.next;
  sums->wires.resize(chunks.total());
  // It belongs to the round, which would keep itself.
  round.on_sum = [sums, chunks](const SliceChunks::Place& at,
                                const std::vector<SharedBytes>& wire) {
    SWARMLINE_CHECK(wire.size() == 1);
    sums->wires[chunks.number(at)] = wire.front().kept();
  };
  auto whole = std::make_shared<Round>(std::move(round));
  jobs_.run(
      [this, whole, sums, first, values = std::move(values),
       turn = codecs_.turn()]() -> Result<void> {
        const auto at = values();
        if (!at) return std::unexpected(at.error());
        return take(*whole, *sums, first, *at, turn);
      },
      guard_.wrap([this, whole, sums, key, start = std::move(start)] {
        const auto running = rounds_.find(key);
        if (running == rounds_.end() || running->second != sums) {
          SWARMLINE_MARK("device_rounds.dropped_while_taken");
          return;
        }
        rounds_.erase(running);
        start(std::move(*whole), landing(sums));
      }));
}

Result<DeviceGradients::Feedback> DeviceRounds::feedback_of(std::uint64_t turn,
                                                            std::uint64_t first) {
  DeviceOptimizer& memory = *context_.state.device();
  const auto even = memory.arena(DeviceArena::kResidual);
  if (!even) return std::unexpected(even.error());
  const auto odd = memory.arena(DeviceArena::kNextResidual);
  if (!odd) return std::unexpected(odd.error());
  return turn % 2 == 0 ? DeviceGradients::Feedback{.current = *even + first, .next = *odd + first}
                       : DeviceGradients::Feedback{.current = *odd + first, .next = *even + first};
}

Result<void> DeviceRounds::take(Round& round, Sums& sums, std::uint64_t first, DeviceAddress values,
                                std::uint64_t turn) {
  ParameterState& state = context_.state;
  const std::uint64_t bytes = round.input.size();
  OwnSlice own{.values = state.accumulator(round.key.phase.step).subspan(first, bytes),
               .residual = {}};
  DeviceGradients::Feedback feedback;
  if (codecs_.feeds_back()) {
    const auto residuals = feedback_of(turn, first);
    if (!residuals) return std::unexpected(residuals.error());
    feedback = *residuals;
    sums.next = feedback.next;
    own.residual = codecs_.residual().subspan(first, bytes);
  }
  auto parts = take_parts({*state.gradients(), *state.device()}, round.spec, values, feedback, own);
  if (!parts) return std::unexpected(parts.error());
  round.parts = std::move(*parts);
  return {};
}

void DeviceRounds::drop(const std::function<bool(const RoundKey&)>& which) {
  std::erase_if(rounds_, [&](const auto& round) { return which(round.first); });
}

DeviceRounds::Bring DeviceRounds::landing(std::shared_ptr<Sums> sums) {
  return [this, sums = std::move(sums)](DeviceAddress there) -> Result<void> {
    const DeviceSide device{*context_.state.gradients(), *context_.state.device()};
    SWARMLINE_TRY(bring_sums(device, sums->spec, sums->wires, there));
    if (sums->next == nullptr) return {};
    return bring_own_residual(device, sums->spec, sums->residual, sums->next);
  };
}

DeviceRounds::Bring DeviceRounds::alone(const RoundKey& key, std::uint64_t first,
                                        std::uint64_t bytes) {
  return [this, step = key.phase.step, first, bytes,
          turn = codecs_.turn()](DeviceAddress there) -> Result<void> {
    ParameterState& state = context_.state;
    const auto sums = state.sums_there(step);
    if (!sums) return std::unexpected(sums.error());
    if (!codecs_.feeds_back()) return state.device()->copy(there, *sums + first, bytes);
    const auto residuals = feedback_of(turn, first);
    if (!residuals) return std::unexpected(residuals.error());
    SWARMLINE_TRY(state.device()->bring(residuals->next, Buffer::zeroed(bytes).bytes()));
    return state.gradients()->add(*sums + first, residuals->current, there,
                                  bytes / size_bytes(state.layout().dtype));
  };
}

}  // namespace swarmline
