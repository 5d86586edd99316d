// DeviceOptimizer on CUDA: device memory for the state and one gradient, the kernels of
// kernels/cuda/optimizer.cuh.

#include <cuda_runtime.h>
#include <span>
#include <string>
#include <utility>

#include "base/check.h"
#include "engine/optimizer/device_optimizer_entry.h"
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
  Result<void> step(const StepScalars& scalars, BytesView gradients, float* on_device,
                    MutableBytes parameters) override;
  Result<void> read_state(Moment moment, std::uint64_t at, MutableBytes bytes) override {
    SWARMLINE_TRY(use_device());
    return (moment == Moment::kFirst ? m_ : v_).read(at, bytes);
  }
  Result<void> write_state(Moment moment, std::uint64_t at, BytesView bytes) override {
    SWARMLINE_TRY(use_device());
    return (moment == Moment::kFirst ? m_ : v_).write(at, bytes);
  }

  Result<void> hash_state(Moment moment, std::span<std::uint64_t> hashes) override {
    return hash_memory((moment == Moment::kFirst ? m_ : v_).as<float>(), hashes);
  }
  Result<void> hash_memory(const float* memory, std::span<std::uint64_t> hashes) override;

 private:
  Result<void> use_device() { return checked(cudaSetDevice(device_), "choosing the device"); }
  cudaError_t launch(const StepScalars& scalars, const kernels::OptimizerArenas& arenas) const;

  const OptimizerSection options_;
  const std::size_t bytes_;  // of parameters, of gradients
  const int device_;
  DeviceMemory m_, v_, gradients_;
  DeviceMemory parameters_;  // allocated by the first step that brings them
  DeviceMemory chunks_, tensors_, sums_, rates_;
  DeviceMemory hashes_;
  kernels::cuda::OptimizerPlan plan_;
};

Result<void> CudaOptimizer::allocate(const ParameterLayout& layout) {
  SWARMLINE_TRY(use_device());
  const StateLayout state = make_state_layout(options_, layout);
  const WorkList work = make_work_list(layout, state);
  SWARMLINE_TRY(m_.allocate(state.first_bytes));
  SWARMLINE_TRY(v_.allocate(state.second_bytes));
  SWARMLINE_TRY(gradients_.allocate(bytes_));
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

Result<void> CudaOptimizer::step(const StepScalars& scalars, BytesView gradients, float* on_device,
                                 MutableBytes parameters) {
  SWARMLINE_TRY(use_device());
  SWARMLINE_TRY(gradients_.write(0, gradients));
  float* target = on_device;
  if (target == nullptr) {
    if (parameters_.size() == 0) SWARMLINE_TRY(parameters_.allocate(bytes_));
    SWARMLINE_TRY(parameters_.write(0, parameters));
    target = parameters_.as<float>();
  }
  SWARMLINE_TRY(checked(launch(scalars, {.gradients = gradients_.as<float>(),
                                         .parameters = target,
                                         .m = m_.as<std::byte>(),
                                         .v = v_.as<std::byte>()}),
                        "launching the optimizer's step"));
  return checked(cudaMemcpy(parameters.data(), target, bytes_, cudaMemcpyDeviceToHost),
                 "the optimizer's step, or reading its parameters");
}

Result<void> CudaOptimizer::hash_memory(const float* memory, std::span<std::uint64_t> hashes) {
  SWARMLINE_TRY(use_device());
  if (hashes_.size() < hashes.size_bytes()) SWARMLINE_TRY(hashes_.allocate(hashes.size_bytes()));
  SWARMLINE_TRY(checked(kernels::cuda::hash_pieces(memory, kStatePieceBytes, hashes.size(),
                                                   hashes_.as<std::uint64_t>(), kDefaultStream),
                        "hashing the optimizer's state"));
  return hashes_.read(0, std::as_writable_bytes(hashes));
}

Result<std::unique_ptr<DeviceOptimizer>> make_optimizer(const OptimizerSection& options,
                                                        const ParameterLayout& layout,
                                                        const float* device_memory) {
  cudaPointerAttributes attributes{};
  SWARMLINE_TRY(checked(cudaPointerGetAttributes(&attributes, device_memory),
                        "finding the parameters' device"));
  SWARMLINE_CHECK(steps_on_device(options));
  auto made = std::make_unique<CudaOptimizer>(options, layout, attributes.device);
  if (auto allocated = made->allocate(layout); !allocated) {
    return fail(allocated.error().code,
                "optimizer on CUDA: " + allocated.error().what +
                    "; use optimizer.state = \"8bit\" or optimizer.state_memory = \"host\".");
  }
  return made;
}

}  // namespace
}  // namespace swarmline

extern "C" {
extern swarmline::MakeDeviceOptimizer* const swarmline_cuda_make_optimizer;
swarmline::MakeDeviceOptimizer* const swarmline_cuda_make_optimizer = swarmline::make_optimizer;
}
