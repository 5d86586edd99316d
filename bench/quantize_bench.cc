// The kernels of kernels/quantize.h on one core: 64 MiB of fp32 (or 32 MiB of bf16), more than the
// caches hold. Every iteration also runs the yardsticks, so that what disturbs one disturbs all;
// the counters are ratios of medians of CPU time:
//   memcpy   speed as a share of copying the same bytes with the C library;
//   floor    the same of merely reading (quantize, axpy), of widening bytes and writing them past
//            the caches (dequantize);
//   threads  speed of two threads, a half each, as a multiple of one.
// All numbers are plain, though GB (GB/s of the floating-point side) is a rate. A result is checked
// before anything is timed.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "base/bytes.h"
#include "base/order_statistics.h"
#include "base/rng.h"
#include "bench/copy_rate.h"
#include "bench/memory_floors.h"
#include "kernels/cpu/quant_path.h"
#include "kernels/kernels.h"
#include "kernels/quantize.h"

namespace swarmline {
namespace {

using kernels::FloatKind;
using kernels::QuantFormat;
using kernels::QuantPath;
using kernels::QuantSpec;

constexpr std::size_t kElements = std::size_t{16} << 20;

struct Case {
  QuantSpec spec;
  std::string name;
  double error_max;  // relative L2, on values uniform in [-1, 1]
};

// On huge pages where the system has them: with small ones, the yardsticks are slower too, and what
// is measured is the page walker.
Buffer on_huge_pages(std::size_t bytes) {
  Buffer made(bytes);
#if defined(__linux__)
  const auto begin = (reinterpret_cast<std::uintptr_t>(made.data()) + 4095) / 4096 * 4096;
  madvise(reinterpret_cast<void*>(begin), bytes - 4096, MADV_HUGEPAGE);
#endif
  std::memset(made.data(), 0, bytes);
  return made;
}

// Everything a case reads and writes, made once.
struct Data {
  Buffer fp32 = on_huge_pages(kElements * 4), bf16 = on_huge_pages(kElements * 2);
  Buffer out = on_huge_pages(kElements * 4), copy = on_huge_pages(kElements * 4);
  Buffer scales = on_huge_pages(kElements / 8), codes = on_huge_pages(kElements);

  Data() {
    Rng rng(1);
    for (float& value : fp32.as<float>()) value = unit_float(rng.next_u32()) * 2 - 1;
    kernels::fp32_to_bf16(fp32.as<float>().data(), bf16.as<std::uint16_t>().data(), kElements);
  }
  std::uint8_t* code_bytes() { return codes.as<std::uint8_t>().data(); }
  const void* source(FloatKind kind) { return kind == FloatKind::kF32 ? fp32.data() : bf16.data(); }
};
Data& data() {
  static Data made;
  return made;
}

template <typename F>
double seconds_of(F f) {
  const double start = bench::thread_seconds();
  f();
  benchmark::ClobberMemory();
  return bench::thread_seconds() - start;
}

bool is_right(const Case& what) {
  Data& d = data();
  kernels::quantize(what.spec, FloatKind::kF32, d.fp32.data(), kElements, nullptr, d.scales.data(),
                    d.code_bytes());
  kernels::dequantize(what.spec, d.scales.data(), d.code_bytes(), kElements, FloatKind::kF32,
                      d.out.data());
  const auto x = std::as_const(d.fp32).as<float>();
  const auto y = std::as_const(d.out).as<float>();
  double error = 0, size = 0;
  for (std::size_t i = 0; i < kElements; ++i) {
    const double e = double{x[i]} - double{y[i]};
    error += e * e;
    size += double{x[i]} * double{x[i]};
  }
  return std::sqrt(error / size) <= what.error_max;
}

using Work = std::function<void(std::size_t begin, std::size_t n)>;
using Floor = std::function<void(std::size_t bytes)>;

// CPU seconds of the slower of two threads with a half each.
double seconds_of_two(const Work& work) {
  std::array<double, 2> seconds = {};
  const auto half = [&](std::size_t i) {
    seconds.at(i) = seconds_of([&] { work(i * kElements / 2, kElements / 2); });
  };
  std::thread other(half, 1);
  half(0);
  other.join();
  return std::max(seconds[0], seconds[1]);
}

void run(benchmark::State& state, const Case& what, const QuantPath& path, std::size_t bytes,
         const Work& work, const Floor& floor) {
  kernels::force_quant_path(&path);
  if (!is_right(what)) {
    state.SkipWithError("decoded values are wrong");
  } else {
    Data& d = data();
    std::vector<double> own, copy, least, two;
    for (auto _ : state) {
      own.push_back(seconds_of([&] { work(0, kElements); }));
      copy.push_back(seconds_of([&] { std::memcpy(d.copy.data(), d.fp32.data(), bytes); }));
      least.push_back(seconds_of([&] { floor(bytes); }));
      two.push_back(seconds_of_two(work));
      state.SetIterationTime(own.back());
    }
    state.counters["GB"] = static_cast<double>(bytes) / median(own) * 1e-9;
    state.counters["memcpy"] = median(copy) / median(own);
    state.counters["floor"] = median(least) / median(own);
    state.counters["threads"] = median(own) / median(two);
  }
  kernels::force_quant_path(nullptr);
}

std::size_t bytes_of(FloatKind kind) {
  return kind == FloatKind::kF32 ? 4 : 2;
}
std::uint8_t* scales_at(const QuantSpec& spec, std::size_t element) {
  return data().scales.as<std::uint8_t>().data() +
         quant_blocks(spec, element) * scale_bytes(spec.scales);
}

void run_quantize(benchmark::State& state, const Case& what, const QuantPath& path,
                  FloatKind source) {
  Data& d = data();
  const std::size_t width = bytes_of(source);
  run(
      state, what, path, kElements * width,
      [&](std::size_t begin, std::size_t n) {
        const auto* values = static_cast<const std::uint8_t*>(d.source(source));
        kernels::quantize(what.spec, source, values + begin * width, n, nullptr,
                          scales_at(what.spec, begin),
                          d.code_bytes() + code_bytes(what.spec, begin));
      },
      [&](std::size_t bytes) {
        benchmark::DoNotOptimize(bench::read_only(d.source(source), bytes));
      });
}
void run_dequantize(benchmark::State& state, const Case& what, const QuantPath& path,
                    FloatKind target) {
  Data& d = data();
  const std::size_t width = bytes_of(target);
  run(
      state, what, path, kElements * width,
      [&](std::size_t begin, std::size_t n) {
        kernels::dequantize(what.spec, scales_at(what.spec, begin),
                            d.code_bytes() + code_bytes(what.spec, begin), n, target,
                            d.out.as<std::uint8_t>().data() + begin * width);
      },
      [&](std::size_t bytes) {
        const auto widen = width == 4 ? bench::widen_by_4 : bench::widen_by_2;
        widen(d.code_bytes(), d.out.data(), bytes);
      });
}
void run_axpy(benchmark::State& state, const Case& what, const QuantPath& path) {
  Data& d = data();
  run(
      state, what, path, kElements * 4,
      [&](std::size_t begin, std::size_t n) {
        kernels::dequantize_axpy(what.spec, 0.5F, scales_at(what.spec, begin),
                                 d.code_bytes() + code_bytes(what.spec, begin), n,
                                 d.out.as<float>().data() + begin);
      },
      [&](std::size_t bytes) { benchmark::DoNotOptimize(bench::read_only(d.out.data(), bytes)); });
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {{QuantFormat::kLin8, 64}, "lin8/64", 0.006},
      {{QuantFormat::kLin8, 256}, "lin8/256", 0.006},
      {{QuantFormat::kLin8, 4096}, "lin8/4096", 0.006},
      {{QuantFormat::kDyn8, 64}, "dyn8/64", 0.013},
      {{QuantFormat::kDyn8, 256}, "dyn8/256", 0.013},
      {{QuantFormat::kDyn8, 4096}, "dyn8/4096", 0.013},
      {{QuantFormat::kH8, 64}, "h8/64", 0.007},
      {{QuantFormat::kE4M3, 128}, "e4m3/128", 0.03},
      {{QuantFormat::kInt4, 32}, "int4/32", 0.1},
      {{QuantFormat::kH4, 32}, "h4/32", 0.11},
  };
  return all;
}

// On the widest instruction set every case, on the others one block of each format.
bool is_wanted(const Case& what, const QuantPath& path) {
  if (&path == kernels::quant_paths().data()) return true;
  const std::uint32_t block = what.spec.block;
  return std::strcmp(path.name, "avx2") == 0 && block != 4096 &&
         (block == 256 || !kernels::is_valid({what.spec.format, 256, what.spec.scales}));
}

template <typename F>
void add(const std::string& name, F f) {
  benchmark::RegisterBenchmark(name.c_str(), f)->UseManualTime()->Unit(benchmark::kMillisecond);
}
const bool registered = [] {
  for (const Case& what : cases()) {
    for (const QuantPath& path : kernels::quant_paths()) {
      if (!is_wanted(what, path)) continue;
      const std::string end = "/" + what.name + "/" + path.name;
      for (const auto& [kind, name] :
           {std::pair{FloatKind::kF32, "fp32"}, {FloatKind::kBf16, "bf16"}}) {
        add("quantize_" + std::string(name) + end, [&what, &path, source = kind](auto& state) {
          run_quantize(state, what, path, source);
        });
        add("dequantize_" + std::string(name) + end, [&what, &path, target = kind](auto& state) {
          run_dequantize(state, what, path, target);
        });
      }
      add("axpy" + end, [&what, &path](auto& state) { run_axpy(state, what, path); });
    }
  }
  return true;
}();

}  // namespace
}  // namespace swarmline
