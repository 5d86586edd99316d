// The optimizer's state and step in the memory of a device; the bits of the host's.
//   Shapes:    as flat_optimizer.h; fp32 only on CUDA. Parameters and gradients lie in the device's
//              memory.
//   Ownership: owns the state and the arenas. Parameters are there, or are the caller's.
//   Thread:    one at a time, the device's; work is queued on the default stream, results are there
//              when a call returns.
//   Errors:    kDevice with CUDA's sentence.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/bytes.h"
#include "base/device_address.h"
#include "base/result.h"
#include "engine/config/run_config.h"
#include "engine/model/model_spec.h"

namespace swarmline {

struct StepScalars;

enum class Moment { kFirst, kSecond };
// A flat arena in the layout: the averaged gradient; the newest version where the model computes on
// those before it; the sum of an island's gradients; two residuals of error feedback.
enum class DeviceArena { kReduced, kCommitted, kIsland, kResidual, kNextResidual };
inline constexpr std::size_t kDeviceArenas = 5;

class DeviceOptimizer {
 public:
  virtual ~DeviceOptimizer() = default;
  // Steps the parameters in place. Both flat, in the layout.
  virtual Result<void> step(const StepScalars& scalars, DeviceAddress gradients,
                            DeviceAddress parameters) = 0;
  // Zeros at first; made when it is asked for first, and in the same place ever after.
  virtual Result<DeviceAddress> arena(DeviceArena which) = 0;
  // Between the host's memory and the device's, or inside that.
  virtual Result<void> bring(DeviceAddress to, BytesView from) = 0;
  virtual Result<void> fetch(MutableBytes to, DeviceAddress from) = 0;
  virtual Result<void> copy(DeviceAddress to, DeviceAddress from, std::uint64_t bytes) = 0;
  // The bits of kernels::sum_of_squares().
  virtual Result<double> sum_of_squares(DeviceAddress values, std::uint64_t elements) = 0;
  // `bytes`: a part of one moment's state, from byte `at` on (state_layout.h).
  virtual Result<void> read_state(Moment moment, std::uint64_t at, MutableBytes bytes) = 0;
  virtual Result<void> write_state(Moment moment, std::uint64_t at, BytesView bytes) = 0;
  // kernels::digest() of one moment's state, or of memory of its device, which is 8-byte aligned.
  virtual Result<std::uint64_t> digest_state(Moment moment) = 0;
  virtual Result<std::uint64_t> digest_memory(DeviceAddress memory, std::uint64_t bytes) = 0;
};

// Whether a CUDA stage keeps state and makes steps on its device. Muon does neither: its products
// have the order of kernels/matrix_product.h, which only the CPU computes in.
inline bool steps_on_device(const OptimizerSection& options) {
  return options.kind != OptimizerKind::kMuon && options.state_memory == StateMemory::kDevice;
}

// Only where steps_on_device(). On the device that `device_memory` belongs to. kDevice: no room, or
// a build without CUDA.
Result<std::unique_ptr<DeviceOptimizer>> make_device_optimizer(const OptimizerSection& options,
                                                               const ParameterLayout& layout,
                                                               DeviceAddress device_memory);

}  // namespace swarmline
