// Optimizer steps on one core. Counters: bytes_per_second of all that is read and written; `memcpy`
// = speed as a share of a memcpy that moves as much, `floor` = as a share of a loop that reads and
// writes the same buffers and computes next to nothing (plain numbers, though they are printed with
// "/s"); `state` = bytes of state a parameter. A result is checked before anything is timed.

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <vector>

#include <benchmark/benchmark.h>

#include "base/rng.h"
#include "bench/copy_rate.h"
#include "engine/optimizer/flat_optimizer.h"
#include "engine/optimizer/muon.h"

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

#if defined(__x86_64__)
#define SWARMLINE_WIDEST __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define SWARMLINE_WIDEST
#endif

// A first pass reads gradients, state and parameters; the last one writes state and parameters.
// `State` is that of one moment and parameter.
template <typename State>
struct Traffic {
  const float* gradients;
  State* m;
  State* v;
  float* parameters;
};
SWARMLINE_WIDEST void touch_fp32(const Traffic<float>& t, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    const float g = t.gradients[i];
    t.m[i] += g;
    t.v[i] -= g;
    t.parameters[i] += g;
  }
}
SWARMLINE_WIDEST void touch_8bit(const Traffic<std::uint8_t>& t, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) t.parameters[i] += t.gradients[i];
  for (std::size_t i = 0; i < n; ++i) t.m[i] ^= 1U;
  for (std::size_t i = 0; i < n; ++i) t.v[i] ^= 1U;
}
SWARMLINE_WIDEST void touch_parameters_fp32(const Traffic<float>& t, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) t.parameters[i] += t.m[i] - t.v[i];
}
SWARMLINE_WIDEST float read_8bit(const Traffic<std::uint8_t>& t, std::size_t n) {
  float lanes[16] = {};
  std::uint32_t codes[16] = {};
  for (std::size_t i = 0; i + 16 <= n; i += 16) {
    for (std::size_t j = 0; j < 16; ++j) {
      lanes[j] += t.gradients[i + j] * t.parameters[i + j];
      codes[j] += t.m[i + j] ^ t.v[i + j];
    }
  }
  float sum = 0;
  for (std::size_t j = 0; j < 16; ++j) sum += lanes[j] + static_cast<float>(codes[j]);
  return sum;
}

// CPU seconds of the step's traffic alone, the best of a few.
double floor_seconds(const OptimizerSection& options, const Buffer& gradients, Buffer& parameters) {
  constexpr int kTries = 5;
  const bool coded = options.state == MomentsKind::k8Bit,
             lamb = options.kind == OptimizerKind::kLamb;
  const std::size_t moment_bytes = kElements * (coded ? 1 : sizeof(float));
  Buffer m = Buffer::zeroed(moment_bytes), v = Buffer::zeroed(moment_bytes);
  const Traffic<float> fp32{gradients.as<float>().data(), m.as<float>().data(),
                            v.as<float>().data(), parameters.as<float>().data()};
  const Traffic<std::uint8_t> codes{gradients.as<float>().data(), m.as<std::uint8_t>().data(),
                                    v.as<std::uint8_t>().data(), parameters.as<float>().data()};
  double best = 1e30;
  for (int i = 0; i < kTries; ++i) {
    const double start = bench::thread_seconds();
    for (std::size_t at = 0; at < kElements; at += kTensorElements) {
      const Traffic<float> f{fp32.gradients + at, fp32.m + at, fp32.v + at, fp32.parameters + at};
      const Traffic<std::uint8_t> c{codes.gradients + at, codes.m + at, codes.v + at,
                                    codes.parameters + at};
      if (coded && lamb) benchmark::DoNotOptimize(read_8bit(c, kTensorElements));
      if (coded) touch_8bit(c, kTensorElements);
      if (!coded) touch_fp32(f, kTensorElements);
      if (!coded && lamb) touch_parameters_fp32(f, kTensorElements);
      benchmark::ClobberMemory();
    }
    best = std::min(best, bench::thread_seconds() - start);
  }
  return best;
}

// `bytes`: read and written for one parameter.
void run_step(benchmark::State& state, OptimizerKind kind, MomentsKind kept, double bytes) {
  OptimizerSection options;
  options.kind = kind;
  options.state = kept;
  options.lr = 0.01;
  FlatOptimizer optimizer(options, layout());
  const Buffer gradients = numbers(1), before = numbers(2);
  Buffer parameters = Buffer::copy_of(before.bytes());
  const StepScalars scalars = step_scalars(options, 0, 100, 0, 0.0);
  const auto step = [&] {
    if (!optimizer.step(scalars, gradients.bytes(), parameters.bytes())) std::abort();
  };
  step();
  if (!first_step_is_right(options, scalars, before, gradients, parameters)) {
    return state.SkipWithError("the first step is wrong");
  }
  for (auto _ : state) {
    step();
    benchmark::ClobberMemory();
  }
  report(state, bytes * double{kElements});
  state.counters["floor"] = benchmark::Counter(floor_seconds(options, gradients, parameters),
                                               benchmark::Counter::kIsIterationInvariantRate);
  state.counters["state"] =
      static_cast<double>(optimizer.state_bytes()) / static_cast<double>(kElements);
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

// Five iterations on a matrix. `flops`: of the products alone, counted whole; the two that are
// symmetric are computed by half.
void run_orthogonalize(benchmark::State& state) {
  const MatrixShape shape{static_cast<std::size_t>(state.range(0)),
                          static_cast<std::size_t>(state.range(1))};
  constexpr std::uint32_t kIterations = 5;
  const Buffer drawn = numbers(4);
  const float* const values = drawn.as<float>().data();
  std::vector<float> matrix(values, values + shape.elements());
  std::vector<float> scratch(muon_scratch_elements(shape.rows, shape.columns));
  orthogonalize(matrix.data(), shape, kIterations, scratch.data());
  // All singular values are near 1: so is the mean square, times the longer side.
  double squares = 0;
  for (const float value : matrix) squares += double{value} * value;
  const auto shorter = static_cast<double>(std::min(shape.rows, shape.columns));
  if (squares < 0.5 * shorter || squares > 1.4 * shorter)
    return state.SkipWithError("the result is not near an orthogonal matrix");
  for (auto _ : state) {
    std::copy_n(values, shape.elements(), matrix.begin());
    orthogonalize(matrix.data(), shape, kIterations, scratch.data());
    benchmark::ClobberMemory();
  }
  const double flops = kIterations * (4 * shorter * static_cast<double>(shape.elements()) +
                                      2 * std::pow(shorter, 3));
  state.counters["flops"] =
      benchmark::Counter(flops, benchmark::Counter::kIsIterationInvariantRate);
}

// Reads and writes of one parameter. fp32: AdamW g m v p / m v p; LAMB besides m v p / p in its
// second pass. 8bit: AdamW the same with moments of 1 1/64 bytes; LAMB g m v p, then all of
// AdamW's.
constexpr double kCoded = 1 + 4.0 / 256;
BENCHMARK_CAPTURE(run_step, adamw, OptimizerKind::kAdamW, MomentsKind::kF32, 28)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(run_step, adamw_8bit, OptimizerKind::kAdamW, MomentsKind::k8Bit, 12 + 4 * kCoded)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(run_step, lamb, OptimizerKind::kLamb, MomentsKind::kF32, 40)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(run_step, lamb_8bit, OptimizerKind::kLamb, MomentsKind::k8Bit, 20 + 6 * kCoded)
    ->Unit(benchmark::kMillisecond);
BENCHMARK(run_orthogonalize)
    ->Args({768, 768})
    ->Args({768, 3072})
    ->Args({3072, 768})
    ->Unit(benchmark::kMillisecond);
BENCHMARK(run_sum_of_squares)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace swarmline
