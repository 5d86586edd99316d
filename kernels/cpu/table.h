// The CPU kernels of one instruction set. Tests walk over all that this machine can run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/kernels.h"
#include "kernels/optimizer.h"

namespace swarmline::kernels {

template <typename T>
struct ArithmeticTable {
  void (*add_into)(const T*, T*, std::size_t);
  void (*add)(const T*, const T*, T*, std::size_t);
  bool (*any_non_finite)(const T*, std::size_t);
  void (*scale)(T, T*, std::size_t);
  void (*axpy)(T, const T*, T*, std::size_t);
  double (*sum_of_squares)(const T*, std::size_t);
  bool (*copy_values)(const T*, T*, std::size_t);
  void (*adamw)(const AdamwStep<T>&, const T*, T*, T*, T*, std::size_t);
  void (*move_moments)(const MomentStep<T>&, const T*, T*, T*, std::size_t);
  LambNorms (*lamb_moments)(const LambStep<T>&, const T*, T*, T*, const T*, std::size_t);
  void (*lamb_apply)(const LambStep<T>&, T, const T*, const T*, T*, std::size_t);
};

struct KernelTable {
  const char* name;
  ArithmeticTable<float> f32;
  ArithmeticTable<double> f64;
  // The floor of format/adam8.h: a code whose value is above 0 becomes 1 at least.
  void (*floor_codes)(const float*, std::uint8_t*, std::size_t);
  bool (*fp64_to_fp32)(const double*, float*, std::size_t);
  bool (*fp32_to_fp64)(const float*, double*, std::size_t);
  bool (*fp32_to_fp16)(const float*, std::uint16_t*, std::size_t);
  bool (*fp16_to_fp32)(const std::uint16_t*, float*, std::size_t);
  bool (*fp32_to_bf16)(const float*, std::uint16_t*, std::size_t);
  bool (*bf16_to_fp32)(const std::uint16_t*, float*, std::size_t);
};

// Widest first; never empty.
std::span<const KernelTable* const> available_tables();

namespace baseline {
extern const KernelTable kTable;
}
namespace avx2 {
extern const KernelTable kTable;
}
namespace avx512 {
extern const KernelTable kTable;
}

}  // namespace swarmline::kernels
