// Encoding and decoding on one core. Counters: bytes_per_second of the uncompressed tensor,
// `memcpy` = speed as a share of copying that tensor, measured in the same process (a plain number,
// though it is printed with "/s"), `wire` = wire bytes per element. A result is checked before
// anything is timed.

#include <cmath>

#include <benchmark/benchmark.h>

#include "base/rng.h"
#include "bench/copy_rate.h"
#include "compression/codec.h"

namespace swarmline {
namespace {

constexpr std::size_t kElements = 8 * 512 * 1024;  // 16 MiB of fp32: a microbatch at d = 1024

const Buffer& tensor() {
  static const Buffer values = [] {
    Buffer made(kElements * sizeof(float));
    Rng rng(1);
    for (float& value : made.as<float>()) value = unit_float(rng.next_u32()) * 2 - 1;
    return made;
  }();
  return values;
}

// Largest error a codec may make on values in [-1, 1].
double error_bound(const CodecSpec& codec) {
  switch (codec.kind) {
    case CodecKind::kNone:
      return 0;
    case CodecKind::kFp16:
      return 0x1p-12;
    case CodecKind::kBf16:
      return 0x1p-9;
    case CodecKind::kLin8:
      return 0.5001 / 127;
    case CodecKind::kDyn8:
      return 0.0071;
    case CodecKind::kH8:
      return 0.04;
    case CodecKind::kE4M3:
      return 0.04;
    case CodecKind::kE5M2:
      return 0.13;
    case CodecKind::kInt4:
      return 0.5001 / 7;
    case CodecKind::kH4:
      return 0.5;
    case CodecKind::kTopK:
      return 1;
  }
  return 0;
}

bool is_right(const CodecSpec& codec, const Buffer& wire, Buffer& out) {
  if (!decode(wire.bytes(), DType::kF32, out.bytes())) return false;
  const auto x = tensor().as<float>();
  const auto y = std::as_const(out).as<float>();
  for (std::size_t i = 0; i < kElements; ++i) {
    if (!(std::abs(double{y[i]} - double{x[i]}) <= error_bound(codec))) return false;
  }
  return true;
}

void report(benchmark::State& state, const Buffer& wire, double copy_seconds) {
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * tensor().size()));
  state.counters["memcpy"] =
      benchmark::Counter(copy_seconds, benchmark::Counter::kIsIterationInvariantRate);
  state.counters["wire"] = static_cast<double>(wire.size()) / double{kElements};
}

void run_encode(benchmark::State& state, const CodecSpec& codec) {
  Buffer out(tensor().size());
  const Buffer wire = encode(codec, tensor().bytes(), DType::kF32);
  if (!is_right(codec, wire, out)) return state.SkipWithError("decoded values are wrong");
  const double copy = bench::copy_seconds(tensor().size());
  for (auto _ : state) {
    const Buffer again = encode(codec, tensor().bytes(), DType::kF32);
    benchmark::DoNotOptimize(again.data());
  }
  report(state, wire, copy);
}

void run_decode(benchmark::State& state, const CodecSpec& codec) {
  Buffer out(tensor().size());
  const Buffer wire = encode(codec, tensor().bytes(), DType::kF32);
  if (!is_right(codec, wire, out)) return state.SkipWithError("decoded values are wrong");
  const double copy = bench::copy_seconds(tensor().size());
  for (auto _ : state) {
    benchmark::DoNotOptimize(decode(wire.bytes(), DType::kF32, out.bytes()));
    benchmark::ClobberMemory();
  }
  report(state, wire, copy);
}

#define SWARMLINE_CODEC_BENCH(name, ...)                                                      \
  BENCHMARK_CAPTURE(run_encode, name, CodecSpec{__VA_ARGS__})->Unit(benchmark::kMillisecond); \
  BENCHMARK_CAPTURE(run_decode, name, CodecSpec{__VA_ARGS__})->Unit(benchmark::kMillisecond)

SWARMLINE_CODEC_BENCH(none, CodecKind::kNone);
SWARMLINE_CODEC_BENCH(fp16, CodecKind::kFp16);
SWARMLINE_CODEC_BENCH(bf16, CodecKind::kBf16);
SWARMLINE_CODEC_BENCH(lin8_64, CodecKind::kLin8, 64);
SWARMLINE_CODEC_BENCH(lin8_256, CodecKind::kLin8, 256);
SWARMLINE_CODEC_BENCH(lin8_4096, CodecKind::kLin8, 4096);
SWARMLINE_CODEC_BENCH(dyn8_256, CodecKind::kDyn8, 256);
SWARMLINE_CODEC_BENCH(h8, CodecKind::kH8, 64);
SWARMLINE_CODEC_BENCH(fp8, CodecKind::kE4M3, 128);
SWARMLINE_CODEC_BENCH(e5m2, CodecKind::kE5M2, 128);
SWARMLINE_CODEC_BENCH(int4, CodecKind::kInt4, 32);
SWARMLINE_CODEC_BENCH(h4, CodecKind::kH4, 32);

}  // namespace
}  // namespace swarmline
