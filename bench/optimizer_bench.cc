// Optimizer steps on one core. Counters: bytes_per_second of all that is read and written, `memcpy`
// = speed as a share of a memcpy that moves as much (a plain number, though it is printed with
// "/s"). A result is checked before anything is timed.

#include <cmath>

#include <benchmark/benchmark.h>

#include "bench/copy_rate.h"
#include "engine/base/rng.h"
#include "engine/optimizer/flat_optimizer.h"

namespace swarmline {
namespace {

constexpr std::size_t kTensors = 16;
constexpr std::size_t kTensorElements = std::size_t{1} << 20;
constexpr std::size_t kElements = kTensors * kTensorElements;  // 64 MiB of fp32 a buffer

ParameterLayout layout() {
  ParameterLayout made;
  for (std::size_t i = 0; i < kTensors; ++i) {
    made.slots.push_back({.name = "tensor" + std::to_string(i),
                          .shape = {static_cast<std::int64_t>(kTensorElements)},
                          .offset = made.elements,
                          .elements = kTensorElements,
                          .decay = true});
    made.elements += kTensorElements;
  }
  made.tied_offset = made.elements;
  return made;
}

Buffer numbers(std::uint64_t seed) {
  Buffer made(kElements * sizeof(float));
  Rng rng(seed);
  for (float& value : made.as<float>()) value = unit_float(rng.next_u32()) * 2 - 1;
  return made;
}

void report(benchmark::State& state, double bytes) {
  // A memcpy of b bytes moves 2 b.
  const double copy = bench::copy_seconds(static_cast<std::size_t>(bytes / 2));
  state.SetBytesProcessed(
      static_cast<std::int64_t>(static_cast<double>(state.iterations()) * bytes));
  state.counters["memcpy"] =
      benchmark::Counter(copy, benchmark::Counter::kIsIterationInvariantRate);
}

// The first step of AdamW moves an element by lr * (sign of its gradient + decay * value), nearly;
// that of LAMB moves a tensor by lr * its norm.
bool first_step_is_right(const OptimizerSection& options, const StepScalars& scalars,
                         const Buffer& before, const Buffer& gradients, const Buffer& after) {
  const auto x = before.as<float>(), g = gradients.as<float>(), y = after.as<float>();
  double moved_squares = 0, squares = 0;
  for (std::size_t i = 0; i < kTensorElements; ++i) {
    const double moved = double{x[i]} - double{y[i]};
    moved_squares += moved * moved;
    squares += double{x[i]} * double{x[i]};
    const double expected =
        scalars.learning_rate * (std::copysign(1.0, g[i]) + options.weight_decay * double{x[i]});
    if (options.kind == OptimizerKind::kAdamW && std::abs(g[i]) > 1e-3F &&
        std::abs(moved - expected) > 1e-3 * scalars.learning_rate) {
      return false;
    }
  }
  const double ratio = std::sqrt(moved_squares / squares) / scalars.learning_rate;
  return options.kind == OptimizerKind::kAdamW || std::abs(ratio - 1) < 1e-3;
}

void run_step(benchmark::State& state, OptimizerKind kind, double passes) {
  OptimizerSection options;
  options.kind = kind;
  options.lr = 0.01;
  FlatOptimizer optimizer(options, layout());
  const Buffer gradients = numbers(1), before = numbers(2);
  Buffer parameters = Buffer::copy_of(before.bytes());
  const StepScalars scalars = step_scalars(options, 0, 100, 0, 0.0);
  optimizer.step(scalars, gradients.bytes(), parameters.bytes());
  if (!first_step_is_right(options, scalars, before, gradients, parameters)) {
    return state.SkipWithError("the first step is wrong");
  }
  for (auto _ : state) {
    optimizer.step(scalars, gradients.bytes(), parameters.bytes());
    benchmark::ClobberMemory();
  }
  report(state, passes * double{kElements} * sizeof(float));
}

void run_sum_of_squares(benchmark::State& state) {
  const Buffer values = numbers(3);
  long double exact = 0;
  for (const float value : values.as<float>()) exact += static_cast<long double>(value) * value;
  if (std::abs(sum_of_squares(values.bytes(), DType::kF32) / static_cast<double>(exact) - 1) >
      1e-13) {
    return state.SkipWithError("the sum is wrong");
  }
  for (auto _ : state) benchmark::DoNotOptimize(sum_of_squares(values.bytes(), DType::kF32));
  report(state, double{kElements} * sizeof(float));
}

// Reads and writes of one element: AdamW g m v p / m v p; LAMB besides m v p / p in its second
// pass.
BENCHMARK_CAPTURE(run_step, adamw, OptimizerKind::kAdamW, 7.0)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(run_step, lamb, OptimizerKind::kLamb, 10.0)->Unit(benchmark::kMillisecond);
BENCHMARK(run_sum_of_squares)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace swarmline
