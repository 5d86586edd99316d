#include "sim/cluster/resident_model.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "base/byte_ops.h"
#include "base/check.h"
#include "engine/optimizer/state_layout.h"
#include "kernels/digest.h"
#include "kernels/kernels.h"
#include "sim/cluster/fake_stage_model.h"
#include "sim/cluster/going_on_model.h"
#include "sim/cluster/kept_sums_model.h"
#include "sim/cluster/wire_model.h"

namespace swarmline {
namespace {

constexpr std::byte kNoNumber{0xFF};

}  // namespace

Result<void> TakenMemory::take(std::uint64_t bytes) {
  if (bytes > bus_->left())
    return fail(ErrorCode::kOutOfMemory, fmt::format("no room for {} bytes", bytes));
  bytes_ += bytes;
  bus_->taken += bytes;
  bus_->most_taken = std::max(bus_->most_taken, bus_->taken);
  return {};
}

void TakenMemory::give_back(std::uint64_t bytes) {
  SWARMLINE_CHECK(bytes <= bytes_);
  bytes_ -= bytes;
  bus_->taken -= bytes;
}

HostedOptimizer::HostedOptimizer(const OptimizerSection& options, const ParameterLayout& layout,
                                 std::shared_ptr<DeviceBus> bus)
    : optimizer_(options, layout),
      dtype_(layout.dtype),
      bytes_(layout.bytes()),
      state_bytes_(make_state_layout(options, layout).bytes()),
      bus_(std::move(bus)),
      taken_(bus_) {}

Result<void> HostedOptimizer::take_state() {
  return taken_.take(state_bytes_);
}

Result<void> HostedOptimizer::step(const StepScalars& scalars, DeviceAddress gradients,
                                   DeviceAddress parameters) {
  return optimizer_.step(scalars, {gradients, bytes_}, {parameters, bytes_});
}

Result<DeviceAddress> HostedOptimizer::arena(DeviceArena which) {
  if (which == DeviceArena::kIsland && !bus_->room_for_islands)
    return fail(ErrorCode::kOutOfMemory, "no room for an island's sum");
  Buffer& buffer = arenas_[static_cast<std::size_t>(which)];
  if (buffer.empty()) {
    SWARMLINE_TRY(taken_.take(bytes_));
    buffer = Buffer::zeroed(bytes_);
  }
  return buffer.data();
}

Result<void> HostedOptimizer::bring(DeviceAddress to, BytesView from) {
  bus_->to_device += from.size();
  copy_bytes(from, {to, from.size()});
  return {};
}

Result<void> HostedOptimizer::fetch(MutableBytes to, DeviceAddress from) {
  bus_->to_host += to.size();
  std::copy_n(from, to.size(), to.begin());
  return {};
}

Result<void> HostedOptimizer::copy(DeviceAddress to, DeviceAddress from, std::uint64_t bytes) {
  std::copy_n(from, bytes, to);
  return {};
}

Result<double> HostedOptimizer::sum_of_squares(DeviceAddress values, std::uint64_t elements) {
  bus_->to_host += sizeof(double);
  return swarmline::sum_of_squares({values, elements * size_bytes(dtype_)}, dtype_);
}

Result<void> HostedOptimizer::read_state(Moment moment, std::uint64_t at, MutableBytes bytes) {
  const auto state = optimizer_.moment(moment);
  return state ? fetch(bytes, state->data() + at) : std::unexpected(state.error());
}

Result<void> HostedOptimizer::write_state(Moment moment, std::uint64_t at, BytesView bytes) {
  const auto state = optimizer_.moment(moment);
  return state ? bring(state->data() + at, bytes) : std::unexpected(state.error());
}

Result<std::uint64_t> HostedOptimizer::digest_state(Moment moment) {
  const auto state = optimizer_.moment(moment);
  if (!state) return std::unexpected(state.error());
  return digest_memory(state->data(), state->size());
}

Result<std::uint64_t> HostedOptimizer::digest_memory(DeviceAddress memory, std::uint64_t bytes) {
  bus_->to_host += sizeof(std::uint64_t);
  return kernels::digest({memory, bytes});
}

// ---- Gradients ----------------------------------------------------------------------------------

namespace {

// It is there when it is waited for, and no sooner.
class HostedWire final : public LeavingWire {
 public:
  HostedWire(Buffer wire, std::shared_ptr<HostedPlaces> places)
      : wire_(std::move(wire)), places_(std::move(places)) {}
  HostedWire(const HostedWire&) = delete;
  HostedWire& operator=(const HostedWire&) = delete;
  ~HostedWire() override { leave(); }
  Result<void> made() override { return {}; }
  Result<Buffer> wait() override {
    leave();
    return std::move(wire_);
  }
  double number() const override { return 0; }

 private:
  void leave() {
    if (const auto places = std::exchange(places_, nullptr)) places->give_back();
  }

  Buffer wire_;
  std::shared_ptr<HostedPlaces> places_;
};

}  // namespace

void HostedPlaces::take() {
  std::unique_lock lock(mutex_);
  const bool free =
      given_back_.wait_for(lock, kPatience, [this] { return taken_ < kLeavingParts; });
  SWARMLINE_CHECK_MSG(free, "more parts begun than there is room for");
  ++taken_;
}

void HostedPlaces::give_back() {
  const std::scoped_lock lock(mutex_);
  --taken_;
  given_back_.notify_one();
}

Result<std::unique_ptr<LeavingWire>> HostedGradients::begin_encode(
    const CodecSpec& codec, DeviceAddress values, std::uint64_t n, const Feedback& feedback,
    const kernels::StochasticKey* key) {
  SWARMLINE_CHECK(encodes(codec) && (feedback.current == nullptr) == (feedback.next == nullptr));
  places_->take();
  const BytesView from = values_at(values, n);
  Buffer wire = feedback.current == nullptr
                    ? encode(codec, from, dtype_, key)
                    : encode_with_feedback(codec, from, dtype_,
                                           {.current = values_at(feedback.current, n),
                                            .next = values_at(feedback.next, n)},
                                           key);
  bus_->to_host += wire.size();
  return std::make_unique<HostedWire>(std::move(wire), places_);
}

Result<void> HostedGradients::decode(BytesView wire, DeviceAddress out, std::uint64_t n) {
  bus_->to_device += wire.size();
  return swarmline::decode(wire, dtype_, values_at(out, n));
}

Result<void> HostedGradients::add(DeviceAddress a, DeviceAddress b, DeviceAddress sum,
                                  std::uint64_t n) {
  const auto sums = [&]<typename T>(T) {
    kernels::add(reinterpret_cast<const T*>(a), reinterpret_cast<const T*>(b),
                 reinterpret_cast<T*>(sum), n);
  };
  dtype_ == DType::kF32 ? sums(float{}) : sums(double{});
  return {};
}

// ---- Model --------------------------------------------------------------------------------------

ResidentModel::ResidentModel(std::unique_ptr<StageModel> inner, std::shared_ptr<DeviceBus> bus)
    : ModelWrapper(std::move(inner)),
      in_use_{.host = Buffer::copy_of(ModelWrapper::parameters())},
      bus_(std::move(bus)),
      taken_(bus_),
      fits_(taken_.take(version_bytes())) {}

std::uint64_t ResidentModel::version_bytes() const {
  const std::uint64_t bytes = layout().bytes();
  return layout().dtype == DType::kF32 ? bytes + bytes / 2 : bytes;
}

Result<void> ResidentModel::take_memory(std::span<const MutableBytes> accumulators, bool other) {
  SWARMLINE_TRY(fits_);
  SWARMLINE_TRY(
      taken_.take(accumulators.size() * layout().bytes() + (other ? version_bytes() : 0)));
  return ModelWrapper::take_memory(accumulators, other);
}

MutableBytes ResidentModel::other_parameters() {
  if (other_.host.empty()) other_.host = Buffer(ModelWrapper::other_parameters().size());
  return other_.host.bytes();
}

void ResidentModel::exchange_parameters() {
  other_parameters();
  ModelWrapper::exchange_parameters();
  std::swap(in_use_, other_);
}

void ResidentModel::parameters_changed() {
  bus_->to_device += in_use_.host.size();
  copy_bytes(in_use_.host.bytes(), ModelWrapper::parameters());
  in_use_.is_older = false;
  ModelWrapper::parameters_changed();
}

void ResidentModel::device_parameters_changed() {
  fill_bytes(in_use_.host.bytes(), kNoNumber);
  in_use_.is_older = true;
}

Result<void> ResidentModel::collect_parameters() {
  if (!std::exchange(in_use_.is_older, false)) return {};
  bus_->to_host += in_use_.host.size();
  copy_bytes(ModelWrapper::parameters(), in_use_.host.bytes());
  return {};
}

Result<std::unique_ptr<DeviceOptimizer>> ResidentModel::make_optimizer(
    const OptimizerSection& options) {
  auto made = std::make_unique<HostedOptimizer>(options, layout(), bus_);
  SWARMLINE_TRY(made->take_state());
  return made;
}

Result<std::unique_ptr<DeviceGradients>> ResidentModel::make_gradients() {
  return std::make_unique<HostedGradients>(layout().dtype, bus_);
}

std::unique_ptr<StageModel> on_a_device(std::unique_ptr<StageModel> model,
                                        std::optional<DType> hidden,
                                        std::shared_ptr<DeviceBus> bus) {
  model = std::make_unique<WireModel>(std::move(model), std::nullopt, hidden);
  model = std::make_unique<KeptSumsModel>(std::move(model));
  model = std::make_unique<ResidentModel>(std::move(model), std::move(bus));
  return std::make_unique<GoingOnModel>(std::move(model));
}

Result<std::unique_ptr<StageModel>> make_resident_model(const ModelSpec& spec,
                                                        const StageSpec& stage,
                                                        const StageModelOptions&) {
  return on_a_device(std::make_unique<FakeStageModel>(spec, stage));
}

}  // namespace swarmline
