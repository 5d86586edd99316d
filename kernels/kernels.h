// What runs on the metal: the CPU kernels, and the numbers their CUDA twins (kernels/cuda/) share.
//   Same bits:  every instruction set gives the bits of the plain loop: only IEEE add, mul, div and
//               sqrt, each rounded on its own, in an order that depends on n alone. Only the
//               payload of a NaN that arithmetic made is left open; conversions define it.
//   Shapes:     n elements, any n >= 0, any alignment. Buffers do not overlap.
//   Thread:     any, stateless; one thread does the work.
//   Errors:     none; what is not finite comes out as the rule of each function says.
#pragma once

#include <cstddef>
#include <cstdint>

namespace swarmline::kernels {

// destination += source.
void add_into(const float* source, float* destination, std::size_t n);
void add_into(const double* source, double* destination, std::size_t n);
// sum = a + b.
void add(const float* a, const float* b, float* sum, std::size_t n);
void add(const double* a, const double* b, double* sum, std::size_t n);
// values *= factor.
void scale(float factor, float* values, std::size_t n);
void scale(double factor, double* values, std::size_t n);
// y += a * x, the product rounded before the sum.
void axpy(float a, const float* x, float* y, std::size_t n);
void axpy(double a, const double* x, double* y, std::size_t n);

// Copies past the caches: for what this core does not read soon. Half to a third of the time of a
// usual copy, which reads what it overwrites.
void stream_copy(const std::byte* source, std::byte* destination, std::size_t bytes);

// Sums of squares, in double, in one fixed order that suits a vector unit as well as a warp:
// element i of a block of kSumBlock goes to lane i mod kSumLanes, lanes are folded in halves, and
// the blocks' sums are summed in the same way.
inline constexpr std::size_t kSumBlock = 4096;
inline constexpr std::size_t kSumLanes = 32;
double sum_of_squares(const float* values, std::size_t n);
double sum_of_squares(const double* values, std::size_t n);

// Conversions return whether a non-finite value was written. Rounding is to nearest even, overflow
// goes to infinity, a NaN stays a (quiet) NaN with its sign and the high bits of its payload.
bool any_non_finite(const float* values, std::size_t n);  // as if they were copied
bool any_non_finite(const double* values, std::size_t n);
bool copy_values(const float* source, float* destination, std::size_t n);
bool copy_values(const double* source, double* destination, std::size_t n);
bool fp64_to_fp32(const double* source, float* destination, std::size_t n);
bool fp32_to_fp64(const float* source, double* destination, std::size_t n);
bool fp32_to_fp16(const float* source, std::uint16_t* destination, std::size_t n);
bool fp16_to_fp32(const std::uint16_t* source, float* destination, std::size_t n);
bool fp32_to_bf16(const float* source, std::uint16_t* destination, std::size_t n);
bool bf16_to_fp32(const std::uint16_t* source, float* destination, std::size_t n);

// The instruction set in use: "baseline", "avx2" or "avx512".
const char* instruction_set();

}  // namespace swarmline::kernels
