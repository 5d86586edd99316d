// DeviceOptimizer on CUDA: device memory for the state and the arenas, the kernels of
// kernels/cuda/optimizer.cuh.

#include <array>
#include <cuda_runtime.h>
#include <span>
#include <string>
#include <utility>

#include "base/check.h"
#include "engine/model/device_optimizer_entry.h"
#include "engine/optimizer/step_constants.h"
#include "kernels/cuda/device_memory.h"
#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/optimizer.cuh"

namespace swarmline {
namespace {

using kernels::cuda::checked;
using kernels::cuda::DeviceMemory;
using kernels::cuda::kDefaultStream;

class CudaOptimizer final : public DeviceOptimizer {
 public:
  CudaOptimizer(const OptimizerSection& options, const ParameterLayout& layout, int device)
      : options_(options), bytes_(layout.bytes()), device_(device) {}
  ~CudaOptimizer() override { cudaSetDevice(device_); }

  Result<void> allocate(const ParameterLayout& layout);
  Result<void> step(const StepScalars& scalars, DeviceAddress gradients,
                    DeviceAddress parameters) override;
  Result<DeviceAddress> arena(DeviceArena which) override;
  Result<void> bring(DeviceAddress to, BytesView from) override {
    return move(to, from.data(), from.size());
  }
  Result<void> fetch(MutableBytes to, DeviceAddress from) override {
    return move(to.data(), from, to.size());
  }
  Result<void> copy(DeviceAddress to, DeviceAddress from, std::uint64_t bytes) override {
    return move(to, from, bytes);
  }
  Result<double> sum_of_squares(DeviceAddress values, std::uint64_t elements) override;
  Result<void> read_state(Moment moment, std::uint64_t at, MutableBytes bytes) override {
    SWARMLINE_TRY(use_device());
    return (moment == Moment::kFirst ? m_ : v_).read(at, bytes);
  }
  Result<void> write_state(Moment moment, std::uint64_t at, BytesView bytes) override {
    SWARMLINE_TRY(use_device());
    return (moment == Moment::kFirst ? m_ : v_).write(at, bytes);
  }

  Result<std::uint64_t> digest_state(Moment moment) override {
    const DeviceMemory& state = moment == Moment::kFirst ? m_ : v_;
    return digest_memory(state.as<std::byte>(), state.size());
  }
  Result<std::uint64_t> digest_memory(DeviceAddress memory, std::uint64_t bytes) override;

 private:
  Result<void> use_device() { return checked(cudaSetDevice(device_), "choosing the device"); }
  Result<void> move(void* to, const void* from, std::uint64_t bytes);
  cudaError_t launch(const StepScalars& scalars, const kernels::OptimizerArenas& arenas) const;

  const OptimizerSection options_;
  const std::size_t bytes_;  // of parameters, of gradients
  const int device_;
  DeviceMemory m_, v_;
  std::array<DeviceMemory, kDeviceArenas> arenas_;
  DeviceMemory chunks_, tensors_, sums_, rates_;
  DeviceMemory digests_;  // of digest_memory(): the digest, then what it works in
  DeviceMemory squares_;  // of sum_of_squares(): the sum, then what it works in
  kernels::cuda::OptimizerPlan plan_;
};

Result<void> CudaOptimizer::allocate(const ParameterLayout& layout) {
  SWARMLINE_TRY(use_device());
  const StateLayout state = make_state_layout(options_, layout);
  const WorkList work = make_work_list(layout, state);
  SWARMLINE_TRY(m_.allocate(state.first_bytes));
  SWARMLINE_TRY(v_.allocate(state.second_bytes));
  SWARMLINE_TRY(arena(DeviceArena::kReduced));
  SWARMLINE_TRY(chunks_.allocate_copy(std::span(work.chunks)));
  SWARMLINE_TRY(tensors_.allocate_copy(std::span(work.tensors)));
  SWARMLINE_TRY(sums_.allocate(2 * sizeof(double) * work.chunks.size()));
  SWARMLINE_TRY(rates_.allocate(sizeof(float) * work.tensors.size()));
  plan_ = {.chunks = chunks_.as<kernels::OptimizerChunk>(),
           .chunks_fp32 = work.chunks_fp32,
           .chunks_8bit = static_cast<std::uint32_t>(work.chunks.size()) - work.chunks_fp32,
           .tensors = tensors_.as<kernels::OptimizerTensor>(),
           .tensor_count = static_cast<std::uint32_t>(work.tensors.size())};
  return {};
}

cudaError_t CudaOptimizer::launch(const StepScalars& scalars,
                                  const kernels::OptimizerArenas& arenas) const {
  if (options_.kind == OptimizerKind::kAdamW) {
    return kernels::cuda::step_adamw(adamw_step<float>(options_, scalars, true),
                                     adamw_step<float>(options_, scalars, false), plan_, arenas,
                                     kDefaultStream);
  }
  return kernels::cuda::step_lamb(
      lamb_step<float>(options_, scalars, true), lamb_step<float>(options_, scalars, false),
      scalars.learning_rate, plan_, arenas,
      {.sums = sums_.as<double>(), .rates = rates_.as<float>()}, kDefaultStream);
}

Result<void> CudaOptimizer::step(const StepScalars& scalars, DeviceAddress gradients,
                                 DeviceAddress parameters) {
  SWARMLINE_TRY(use_device());
  SWARMLINE_TRY(checked(launch(scalars, {.gradients = reinterpret_cast<const float*>(gradients),
                                         .parameters = reinterpret_cast<float*>(parameters),
                                         .m = m_.as<std::byte>(),
                                         .v = v_.as<std::byte>()}),
                        "launching the optimizer's step"));
  return checked(cudaStreamSynchronize(kDefaultStream), "the optimizer's step");
}

Result<DeviceAddress> CudaOptimizer::arena(DeviceArena which) {
  SWARMLINE_TRY(use_device());
  DeviceMemory& memory = arenas_[static_cast<std::size_t>(which)];
  if (memory.size() == 0) SWARMLINE_TRY(memory.allocate(bytes_));
  return memory.as<std::byte>();
}

Result<void> CudaOptimizer::move(void* to, const void* from, std::uint64_t bytes) {
  SWARMLINE_TRY(use_device());
  SWARMLINE_TRY(checked(cudaMemcpy(to, from, bytes, cudaMemcpyDefault), "copying an arena"));
  // A copy inside the device's memory is only begun by that.
  return checked(cudaStreamSynchronize(kDefaultStream), "copying an arena");
}

Result<double> CudaOptimizer::sum_of_squares(DeviceAddress values, std::uint64_t elements) {
  SWARMLINE_TRY(use_device());
  const std::size_t bytes =
      sizeof(double) * (1 + kernels::cuda::sum_of_squares_workspace(elements));
  if (squares_.size() < bytes) SWARMLINE_TRY(squares_.allocate(bytes));
  auto* const result = squares_.as<double>();
  SWARMLINE_TRY(checked(kernels::cuda::sum_of_squares(reinterpret_cast<const float*>(values),
                                                      elements, result + 1, result, kDefaultStream),
                        "summing squares"));
  double sum = 0;
  SWARMLINE_TRY(squares_.read(0, std::as_writable_bytes(std::span(&sum, 1))));
  return sum;
}

Result<std::uint64_t> CudaOptimizer::digest_memory(DeviceAddress memory, std::uint64_t bytes) {
  SWARMLINE_TRY(use_device());
  const std::size_t words = 1 + kernels::cuda::digest_workspace(bytes);
  if (digests_.size() < sizeof(std::uint64_t) * words)
    SWARMLINE_TRY(digests_.allocate(sizeof(std::uint64_t) * words));
  auto* const result = digests_.as<std::uint64_t>();
  SWARMLINE_TRY(checked(kernels::cuda::digest(memory, bytes, result + 1, result, kDefaultStream),
                        "launching a digest"));
  std::uint64_t digest = 0;
  SWARMLINE_TRY(digests_.read(0, std::as_writable_bytes(std::span(&digest, 1))));
  return digest;
}

Result<std::unique_ptr<DeviceOptimizer>> make_optimizer(const OptimizerSection& options,
                                                        const ParameterLayout& layout,
                                                        DeviceAddress device_memory) {
  cudaPointerAttributes attributes{};
  SWARMLINE_TRY(checked(cudaPointerGetAttributes(&attributes, device_memory),
                        "finding the parameters' device"));
  SWARMLINE_CHECK(steps_on_device(options));
  auto made = std::make_unique<CudaOptimizer>(options, layout, attributes.device);
  if (auto allocated = made->allocate(layout); !allocated)
    return fail(allocated.error().code, "optimizer on CUDA: " + allocated.error().what);
  return made;
}

}  // namespace
}  // namespace swarmline

extern "C" {
extern swarmline::MakeDeviceOptimizer* const swarmline_cuda_make_optimizer;
swarmline::MakeDeviceOptimizer* const swarmline_cuda_make_optimizer = swarmline::make_optimizer;
}
