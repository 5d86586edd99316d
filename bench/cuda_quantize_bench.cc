// The CUDA quantization kernels against a device-to-device copy of the same bytes (read + written)
// in the same run: medians of alternating rounds, timed by events. One JSON object a line.
//   share:  time of the copy / time of the kernel; 1 is the speed of memory
//   goal:   the least share (graph: the most microseconds) that the kernel is meant to reach
// Results are compared with the CPU's first. Arguments: [mebi-elements], 128 unless told.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/order_statistics.h"
#include "base/rng.h"
#include "bench/cuda_timing.h"
#include "kernels/cuda/quantize.cuh"
#include "kernels/kernels.h"

namespace swarmline {
namespace {

namespace cuda = kernels::cuda;
using bench::DeviceBytes;
using bench::must;
using kernels::FloatKind;
using kernels::QuantFormat;
using kernels::QuantSpec;
using kernels::ScaleKind;

constexpr std::size_t kSampleElements = std::size_t{1} << 22;
constexpr std::size_t kCheckedElements = std::size_t{1} << 20;

cudaStream_t stream;

struct Workspace {
  std::size_t n;
  DeviceBytes values, other, scales, codes, tiles, copy_from, copy_to;
  explicit Workspace(std::size_t elements)
      : n(elements),
        values(4 * n),
        other(4 * n),
        scales(n / 8),
        codes(n),
        tiles(n + n / 8 + (std::size_t{1} << 20)),
        copy_from(7 * n),
        copy_to(7 * n) {}
};

// Times `call`, which moves `bytes`, beside a copy that moves as many.
void measure(Workspace& w, const std::string& op, const char* format, const char* dtype,
             const QuantSpec& spec, double bytes, double goal, const std::function<void()>& call) {
  bench::report(op.c_str(), format, dtype, spec.block, bytes,
                bench::time_beside_copy(stream, bytes, w.copy_from, w.copy_to, call), goal);
}

struct Case {
  const char* name;
  QuantSpec spec;
  double goal_fp32;  // of quantize
  double goal_16;
};
const std::vector<Case> kCases = {
    {"lin8", {QuantFormat::kLin8, 64, ScaleKind::kF32}, .92, .90},
    {"lin8", {QuantFormat::kLin8, 256, ScaleKind::kF32}, .92, .90},
    {"lin8", {QuantFormat::kLin8, 4096, ScaleKind::kF32}, .92, .90},
    {"dyn8", {QuantFormat::kDyn8, 64, ScaleKind::kF32}, .88, .75},
    {"dyn8", {QuantFormat::kDyn8, 256, ScaleKind::kF32}, .88, .75},
    {"dyn8", {QuantFormat::kDyn8, 4096, ScaleKind::kF32}, .88, .75},
    {"h8", {QuantFormat::kH8, 64, ScaleKind::kF32}, .88, .75},
    {"e4m3", {QuantFormat::kE4M3, 128, ScaleKind::kF32}, 0, 0},
    {"e5m2", {QuantFormat::kE5M2, 128, ScaleKind::kF32}, 0, 0},
    {"int4", {QuantFormat::kInt4, 32, ScaleKind::kF32}, 0, 0},
    {"h4", {QuantFormat::kH4, 32, ScaleKind::kF32}, 0, 0},
};
constexpr FloatKind kKinds[] = {FloatKind::kF32, FloatKind::kBf16, FloatKind::kF16};
constexpr const char* kKindNames[] = {"fp32", "bf16", "fp16"};
constexpr double kDequantizeGoal = .92;
constexpr double kGraphGoalMicroseconds = 9;

// A normal sample (sum of uniforms) of kSampleElements, repeated over the buffer as `kind`.
std::vector<std::uint8_t> sample(FloatKind kind) {
  Rng rng(1);
  std::vector<float> x(kSampleElements);
  for (float& value : x) {
    float sum = -6;
    for (int i = 0; i < 12; ++i) sum += unit_float(rng.next_u32());
    value = sum;
  }
  std::vector<std::uint8_t> bytes(kSampleElements * (kind == FloatKind::kF32 ? 4 : 2));
  auto* halves = reinterpret_cast<std::uint16_t*>(bytes.data());
  if (kind == FloatKind::kF32) std::memcpy(bytes.data(), x.data(), bytes.size());
  if (kind == FloatKind::kF16) kernels::fp32_to_fp16(x.data(), halves, x.size());
  if (kind == FloatKind::kBf16) kernels::fp32_to_bf16(x.data(), halves, x.size());
  return bytes;
}
void fill(const DeviceBytes& buffer, std::size_t bytes, const std::vector<std::uint8_t>& from) {
  for (std::size_t at = 0; at < bytes; at += from.size()) {
    must(cudaMemcpy(buffer.bytes() + at, from.data(), std::min(from.size(), bytes - at),
                    cudaMemcpyHostToDevice));
  }
}

void check(const Workspace& w, const Case& c, FloatKind kind,
           const std::vector<std::uint8_t>& values) {
  const std::size_t n = std::min(w.n, kCheckedElements);
  std::vector<std::uint8_t> codes(code_bytes(c.spec, n)), got(codes.size());
  std::vector<std::uint8_t> scales(quant_blocks(c.spec, n) * 4);
  kernels::quantize(c.spec, kind, values.data(), n, nullptr, scales.data(), codes.data());
  must(cudaMemcpy(got.data(), w.codes.bytes(), got.size(), cudaMemcpyDeviceToHost));
  if (got == codes) return;
  std::fprintf(stderr, "%s block %u: codes differ from the CPU's\n", c.name, c.spec.block);
  std::exit(1);
}

void bench_case(Workspace& w, const Case& c, int kind_index,
                const std::vector<std::uint8_t>& values) {
  const FloatKind kind = kKinds[kind_index];
  const auto n = static_cast<double>(w.n);
  const double width = kind == FloatKind::kF32 ? 4 : 2;
  const double coded = static_cast<double>(code_bytes(c.spec, w.n)) +
                       4 * static_cast<double>(quant_blocks(c.spec, w.n));
  const char* dtype = kKindNames[kind_index];
  const auto quantize = [&] {
    must(cuda::quantize(c.spec, kind, w.values.bytes(), w.n, nullptr, w.scales.bytes(),
                        w.codes.bytes(), nullptr, stream));
  };
  quantize();
  must(cudaStreamSynchronize(stream));
  check(w, c, kind, values);
  measure(w, "quantize", c.name, dtype, c.spec, n * width + coded,
          kind == FloatKind::kF32 ? c.goal_fp32 : c.goal_16, quantize);
  measure(w, "dequantize", c.name, dtype, c.spec, n * width + coded, kDequantizeGoal, [&] {
    must(cuda::dequantize(c.spec, w.scales.bytes(), w.codes.bytes(), w.n, kind, w.other.bytes(),
                          nullptr, stream));
  });
  if (kind != FloatKind::kF32) return;
  must(cudaMemsetAsync(w.other.bytes(), 0, 4 * w.n, stream));
  measure(w, "quantize+feedback", c.name, dtype, c.spec, 3 * n * width + coded, 0, [&] {
    must(cuda::quantize_wire_with_feedback(c.spec, w.values.floats(), w.other.floats(),
                                           w.other.floats(), w.n, nullptr, w.tiles.bytes(), nullptr,
                                           stream));
  });
}

// A message of 16 MiB of bf16, as 100 nodes of a graph; microseconds of one.
void bench_graph(Workspace& w, const Case& c) {
  constexpr std::size_t kElements = std::size_t{8} << 20;
  constexpr int kNodes = 100;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < kNodes; ++i) {
    must(cuda::quantize(c.spec, FloatKind::kBf16, w.values.bytes(), kElements, nullptr,
                        w.scales.bytes(), w.codes.bytes(), nullptr, stream));
  }
  must(cudaStreamEndCapture(stream, &graph));
  must(cudaGraphInstantiate(&exec, graph, 0));
  std::vector<double> times;
  for (int round = -bench::kWarmups; round < bench::kRounds; ++round) {
    const double time =
        bench::time_once(stream, [&] { must(cudaGraphLaunch(exec, stream)); }) / kNodes;
    if (round >= 0) times.push_back(time);
  }
  must(cudaGraphExecDestroy(exec));
  must(cudaGraphDestroy(graph));
  std::printf(
      "{\"op\": \"16 MiB message in a graph\", \"format\": \"%s\", \"dtype\": \"bf16\", "
      "\"block\": %u, \"us\": %.2f, \"goal_us\": %.1f}\n",
      c.name, c.spec.block, median(times), kGraphGoalMicroseconds);
}

int run(std::size_t n) {
  if (!bench::has_device()) return 0;
  must(cudaStreamCreate(&stream));
  Workspace w(n);
  for (int kind = 0; kind < 3; ++kind) {
    const std::vector<std::uint8_t> values = sample(kKinds[kind]);
    fill(w.values, n * (kind == 0 ? 4 : 2), values);
    for (const Case& c : kCases) bench_case(w, c, kind, values);
    if (kKinds[kind] != FloatKind::kBf16) continue;
    for (const Case& c : kCases) bench_graph(w, c);
  }
  return 0;
}

}  // namespace
}  // namespace swarmline

int main(int argc, char** argv) {
  const unsigned long long mebi = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 128;
  return swarmline::run(static_cast<std::size_t>(mebi) << 20);
}
