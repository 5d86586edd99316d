// A model whose parameters are in a device's memory, where the optimizer steps them, as those of a
// CUDA stage are; the device's memory is this process's. What the host has older copies of is no
// number there, so that whoever reads them without collecting them spoils the run. A bus counts
// what crosses, and what is taken of the device's memory: parameters and, of fp32, what products
// read of them, sums, the optimizer's state and arenas, as a CUDA stage takes them.
//   Shapes, dtypes: those of the model inside, whose arenas are the device's side.
//   Ownership: the bus is shared by the model and its optimizer.
//   Thread, errors: as the model inside.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "engine/optimizer/flat_optimizer.h"
#include "sim/cluster/model_wrapper.h"

namespace swarmline {

struct DeviceBus {
  std::uint64_t to_device = 0;  // bytes
  std::uint64_t to_host = 0;
  bool room_for_islands = true;  // false: their arena does not fit
  // Of the device's memory, in bytes: what there is, and what is taken of it.
  std::uint64_t memory = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t taken = 0;
  std::uint64_t most_taken = 0;

  std::uint64_t left() const { return memory - taken; }
};

// A part of that memory, which goes back with it.
class TakenMemory {
 public:
  explicit TakenMemory(std::shared_ptr<DeviceBus> bus) : bus_(std::move(bus)) {}
  TakenMemory(const TakenMemory&) = delete;
  TakenMemory& operator=(const TakenMemory&) = delete;
  ~TakenMemory() { give_back(bytes_); }
  Result<void> take(std::uint64_t bytes);  // kOutOfMemory: no room for so many more
  void give_back(std::uint64_t bytes);

 private:
  std::shared_ptr<DeviceBus> bus_;
  std::uint64_t bytes_ = 0;
};

// The host's optimizer on arenas that count as a device's.
class HostedOptimizer final : public DeviceOptimizer {
 public:
  HostedOptimizer(const OptimizerSection& options, const ParameterLayout& layout,
                  std::shared_ptr<DeviceBus> bus);
  Result<void> take_state();  // its room, before anything else
  Result<void> step(const StepScalars& scalars, DeviceAddress gradients,
                    DeviceAddress parameters) override;
  Result<DeviceAddress> arena(DeviceArena which) override;
  Result<void> bring(DeviceAddress to, BytesView from) override;
  Result<void> fetch(MutableBytes to, DeviceAddress from) override;
  Result<void> copy(DeviceAddress to, DeviceAddress from, std::uint64_t bytes) override;
  Result<double> sum_of_squares(DeviceAddress values, std::uint64_t elements) override;
  Result<void> read_state(Moment moment, std::uint64_t at, MutableBytes bytes) override;
  Result<void> write_state(Moment moment, std::uint64_t at, BytesView bytes) override;
  Result<std::uint64_t> digest_state(Moment moment) override;
  Result<std::uint64_t> digest_memory(DeviceAddress memory, std::uint64_t bytes) override;

 private:
  FlatOptimizer optimizer_;
  const DType dtype_;
  const std::size_t bytes_;  // of an arena
  const std::size_t state_bytes_;
  std::array<Buffer, kDeviceArenas> arenas_;
  std::shared_ptr<DeviceBus> bus_;
  TakenMemory taken_;
};

// Of parts that leave; whoever begins one more waits.
class HostedPlaces {
 public:
  void take();  // CHECKed: a place is given back in kPatience
  void give_back();

 private:
  static constexpr auto kPatience = std::chrono::seconds(10);
  std::mutex mutex_;
  std::condition_variable given_back_;
  std::size_t taken_ = 0;
};

// The host's codecs on memory that counts as a device's.
class HostedGradients final : public DeviceGradients {
 public:
  HostedGradients(DType dtype, std::shared_ptr<DeviceBus> bus)
      : dtype_(dtype), bus_(std::move(bus)) {}
  bool encodes(const CodecSpec& codec) const override { return codec.kind != CodecKind::kNone; }
  Result<std::unique_ptr<LeavingWire>> begin_encode(const CodecSpec& codec, DeviceAddress values,
                                                    std::uint64_t n, const Feedback& feedback,
                                                    const kernels::StochasticKey* key) override;
  Result<void> decode(BytesView wire, DeviceAddress out, std::uint64_t n) override;
  Result<void> add(DeviceAddress a, DeviceAddress b, DeviceAddress sum, std::uint64_t n) override;

 private:
  MutableBytes values_at(DeviceAddress at, std::uint64_t n) const {
    return {at, n * size_bytes(dtype_)};
  }

  const DType dtype_;
  std::shared_ptr<DeviceBus> bus_;
  std::shared_ptr<HostedPlaces> places_ = std::make_shared<HostedPlaces>();
};

class ResidentModel final : public ModelWrapper {
 public:
  explicit ResidentModel(std::unique_ptr<StageModel> inner,
                         std::shared_ptr<DeviceBus> bus = std::make_shared<DeviceBus>());
  MutableBytes parameters() override { return in_use_.host.bytes(); }
  MutableBytes other_parameters() override;
  void exchange_parameters() override;
  void parameters_changed() override;
  DeviceAddress device_parameters() override { return ModelWrapper::parameters().data(); }
  void device_parameters_changed() override;
  Result<void> collect_parameters() override;
  Result<void> take_memory(std::span<const MutableBytes> accumulators, bool other) override;
  Result<std::unique_ptr<DeviceOptimizer>> make_optimizer(const OptimizerSection& options) override;
  Result<std::unique_ptr<DeviceGradients>> make_gradients() override;

 private:
  struct Version {
    Buffer host;
    bool is_older = false;
  };
  std::uint64_t version_bytes() const;
  Version in_use_, other_;
  std::shared_ptr<DeviceBus> bus_;
  TakenMemory taken_;
  Result<void> fits_;  // the version in use
};

// The model does all that one on CUDA does: sums, parameters and optimizer stay there, tensors
// cross as wire buffers, and its device goes on by itself. `hidden`: as WireModel's.
std::unique_ptr<StageModel> on_a_device(
    std::unique_ptr<StageModel> model, std::optional<DType> hidden = {},
    std::shared_ptr<DeviceBus> bus = std::make_shared<DeviceBus>());
// The stand-in without libtorch, so.
Result<std::unique_ptr<StageModel>> make_resident_model(const ModelSpec& spec,
                                                        const StageSpec& stage,
                                                        const StageModelOptions& options);

}  // namespace swarmline
