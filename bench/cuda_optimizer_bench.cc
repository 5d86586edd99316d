// Optimizer steps on CUDA against a device-to-device copy of the same bytes (read + written) in the
// same run: medians of alternating rounds, timed by events. One JSON object a line.
//   share:  time of the copy / time of the step; 1 is the speed of memory
//   goal:   the least share that the step is meant to reach; 0: none
// A step of each kind is compared with the host's first. Arguments: [mebi-parameters], 128 unless
// told.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "base/byte_ops.h"
#include "base/rng.h"
#include "bench/cuda_timing.h"
#include "engine/optimizer/flat_optimizer.h"
#include "engine/optimizer/step_constants.h"
#include "kernels/cuda/optimizer.cuh"

namespace swarmline {
namespace {

namespace cuda = kernels::cuda;
using bench::DeviceBytes;
using bench::must;

constexpr std::size_t kTensorElements = std::size_t{4} << 20;
constexpr double kCodedGoal = 1 / 1.25;

ParameterLayout layout_of(std::size_t elements) {
  ParameterLayout layout;
  for (std::size_t at = 0; at < elements; at += kTensorElements) {
    const std::size_t size = std::min(kTensorElements, elements - at);
    layout.slots.push_back({.name = "tensor" + std::to_string(layout.slots.size()),
                            .shape = {static_cast<std::int64_t>(size)},
                            .offset = at,
                            .elements = size,
                            .decay = true});
  }
  layout.elements = layout.tied_offset = elements;
  return layout;
}

Buffer numbers(std::size_t n, std::uint64_t seed) {
  Buffer made(n * sizeof(float));
  Rng rng(seed);
  for (float& value : made.as<float>()) value = unit_float(rng.next_u32()) * 2 - 1;
  return made;
}

// Three steps of 1 Mi and some parameters: the host's bits.
void check(const OptimizerSection& options) {
  const ParameterLayout layout = layout_of((std::size_t{1} << 20) + 112);
  Buffer host = numbers(layout.elements, 1), there(host.size());
  DeviceBytes parameters(host.size());
  must(cudaMemcpy(parameters.as<float>(), host.data(), host.size(), cudaMemcpyHostToDevice));
  auto made = make_device_optimizer(options, layout, parameters.as<std::byte>());
  if (!made) {
    std::fprintf(stderr, "%s\n", made.error().what.c_str());
    std::exit(1);
  }
  FlatOptimizer plain(options, layout), device(options, layout, std::move(*made));
  const DeviceAddress reduced = *device.device()->arena(DeviceArena::kReduced);
  RollingHash hashes[2];
  for (std::uint64_t step = 0; step < 3; ++step) {
    const Buffer gradients = numbers(layout.elements, 10 + step);
    const StepScalars scalars = step_scalars(options, step, 100, step, 1.0);
    const bool ok = plain.step(scalars, gradients.bytes(), host.bytes()) &&
                    device.device()->bring(reduced, gradients.bytes()) &&
                    device.step_there(scalars, reduced, parameters.as<std::byte>());
    if (!ok || !plain.add_state_to(hashes[0]) || !device.add_state_to(hashes[1])) std::exit(1);
  }
  if (!device.device()->fetch(there.bytes(), parameters.as<std::byte>())) std::exit(1);
  if (!same_bytes(host.bytes(), there.bytes()) || hashes[0].value() != hashes[1].value()) {
    std::fprintf(stderr, "the device's step is not the host's\n");
    std::exit(1);
  }
}

// `bytes`: read and written for one parameter.
void measure(const OptimizerSection& options, const char* op, std::size_t elements, double bytes,
             double goal) {
  check(options);
  const ParameterLayout layout = layout_of(elements);
  const StateLayout state = make_state_layout(options, layout);
  const WorkList work = make_work_list(layout, state);
  const Buffer host_gradients = numbers(elements, 1);
  const DeviceBytes gradients(elements * sizeof(float)), parameters(elements * sizeof(float));
  must(cudaMemcpy(gradients.as<float>(), host_gradients.data(), host_gradients.size(),
                  cudaMemcpyHostToDevice));
  const DeviceBytes m(state.first_bytes), v(state.second_bytes), chunks(work.chunks),
      tensors(work.tensors);
  const DeviceBytes sums(2 * sizeof(double) * work.chunks.size());
  const DeviceBytes rates(sizeof(float) * work.tensors.size());
  const cuda::OptimizerPlan plan{
      .chunks = chunks.as<kernels::OptimizerChunk>(),
      .chunks_fp32 = work.chunks_fp32,
      .chunks_8bit = static_cast<std::uint32_t>(work.chunks.size()) - work.chunks_fp32,
      .tensors = tensors.as<kernels::OptimizerTensor>(),
      .tensor_count = static_cast<std::uint32_t>(work.tensors.size())};
  const kernels::OptimizerArenas arenas{.gradients = gradients.as<float>(),
                                        .parameters = parameters.as<float>(),
                                        .m = m.as<std::byte>(),
                                        .v = v.as<std::byte>()};
  const StepScalars scalars = step_scalars(options, 0, 100, 0, 0.0);
  const auto step = [&] {
    if (options.kind == OptimizerKind::kAdamW) {
      const auto constants = adamw_step<float>(options, scalars, true);
      must(cuda::step_adamw(constants, constants, plan, arenas, nullptr));
    } else {
      const auto constants = lamb_step<float>(options, scalars, true);
      must(cuda::step_lamb(constants, constants, scalars.learning_rate, plan, arenas,
                           {.sums = sums.as<double>(), .rates = rates.as<float>()}, nullptr));
    }
  };
  const double all = bytes * static_cast<double>(elements);
  const auto half = static_cast<std::size_t>(all / 2);
  const DeviceBytes from(half), to(half);
  bench::report(op, options.state == MomentsKind::k8Bit ? "8bit" : "fp32", "fp32",
                kernels::kMomentBlock, all, bench::time_beside_copy(nullptr, all, from, to, step),
                goal);
}

int run(int argc, char** argv) {
  if (!bench::has_device()) return 0;
  const std::size_t elements = (argc > 1 ? std::strtoull(argv[1], nullptr, 10) : std::size_t{128})
                               << 20;
  constexpr double kCoded = 1 + 4.0 / 256;  // bytes of a coded moment
  OptimizerSection options;
  options.lr = 0.01;
  for (const MomentsKind state : {MomentsKind::kF32, MomentsKind::k8Bit}) {
    options.state = state;
    const bool coded = options.state == MomentsKind::k8Bit;
    options.kind = OptimizerKind::kAdamW;
    measure(options, "adamw", elements, coded ? 12 + 4 * kCoded : 28, coded ? kCodedGoal : 0);
    options.kind = OptimizerKind::kLamb;
    measure(options, "lamb", elements, coded ? 20 + 6 * kCoded : 40, 0);
  }
  return 0;
}

}  // namespace
}  // namespace swarmline

int main(int argc, char** argv) {
  return swarmline::run(argc, argv);
}
