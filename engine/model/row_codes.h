// A matrix as 8-bit codes with one scale a row: the operands of fp8 and int8 matrix products.
//   Format:  a row is a block of the wire formats of the same names: kE4M3 and kE5M2 are those of
//            kernels/format/fp8.h (top 448 and 57344), kInt8 is kernels/format/lin8.h (top 127),
//            scales fp32 by kernels/format/scale.h, codes rounded to nearest even. A row that is
//            not finite has scale NaN and codes 0, so that products with it are NaN.
//   Product: of x (M, K) and w (N, K): y[m][n] = (sum over k of the codes' products) * scale_x[m]
//            * scale_w[n]. The codes' products are exact in fp32. int8: the sum is exact (int32;
//            K <= kInt8WidthMax). fp8: an fp32 sum, in an order that the device chooses; at most
//            one of the two is e5m2.
//   Shapes:  x (rows, width) row-major, codes likewise one byte each, scales (rows).
//   Thread:  pure; on CUDA enqueued on `stream`, pointers to device memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace swarmline {

enum class RowFormat : std::uint8_t { kE4M3, kE5M2, kInt8 };
inline constexpr std::int64_t kInt8WidthMax = 133'000;  // 127^2 K stays below 2^31
// Whether a matrix of one format is multiplied by one of the other. Source: the table of fp8 types
// of cublasLtMatmul(), which has no product of two e5m2.
constexpr bool have_product(RowFormat x, RowFormat w) {
  if (x == RowFormat::kInt8 || w == RowFormat::kInt8) return x == w;
  return x == RowFormat::kE4M3 || w == RowFormat::kE4M3;
}

void quantize_rows(RowFormat format, const float* x, std::size_t rows, std::size_t width,
                   std::uint8_t* codes, float* scales);
// The number a code stands for, before its scale.
float code_number(RowFormat format, std::uint8_t code);

namespace cuda {
enum class RowType : std::uint8_t { kF32, kBF16 };
// The same bits as on the CPU. Null: launched; else what CUDA says.
const char* quantize_rows(RowFormat format, const void* x, RowType type, std::size_t rows,
                          std::size_t width, std::uint8_t* codes, float* scales, void* stream);
}  // namespace cuda

}  // namespace swarmline
