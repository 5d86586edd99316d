// The optimizer's state and step in the memory of a CUDA device; the bits of the host's.
//   Shapes:    as flat_optimizer.h, fp32 only. Parameters lie in the device's memory, gradients in
//              the host's.
//   Ownership: owns the state and room for a gradient (and for parameters, where those of the
//              caller are in the host's memory).
//   Thread:    one at a time, the device's; work is queued on the default stream, results are there
//              when a call returns.
//   Errors:    kDevice with CUDA's sentence.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/bytes.h"
#include "base/result.h"
#include "engine/config/run_config.h"
#include "engine/model/model_spec.h"

namespace swarmline {

struct StepScalars;

enum class Moment { kFirst, kSecond };
// What is hashed by itself of a stage's state, so that a device hashes many at once.
inline constexpr std::size_t kStatePieceBytes = std::size_t{1} << 20;

class DeviceOptimizer {
 public:
  virtual ~DeviceOptimizer() = default;
  // Steps the device's parameters and copies them to `parameters` (host). `on_device` null: those
  // of the host are brought to the device first.
  virtual Result<void> step(const StepScalars& scalars, BytesView gradients, float* on_device,
                            MutableBytes parameters) = 0;
  // `bytes`: a part of one moment's state, from byte `at` on (state_layout.h).
  virtual Result<void> read_state(Moment moment, std::uint64_t at, MutableBytes bytes) = 0;
  virtual Result<void> write_state(Moment moment, std::uint64_t at, BytesView bytes) = 0;
  // XXH3 of each whole piece of kStatePieceBytes of one moment's state, as many as `hashes` has; or
  // of memory of its device that begins there.
  virtual Result<void> hash_state(Moment moment, std::span<std::uint64_t> hashes) = 0;
  virtual Result<void> hash_memory(const float* memory, std::span<std::uint64_t> hashes) = 0;
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
                                                               const float* device_memory);

}  // namespace swarmline
