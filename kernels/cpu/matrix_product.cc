// matrix_product.h on the CPU: panels of both factors are packed so that a tile of 4 rows and three
// vectors of columns is summed in registers.

#include "kernels/matrix_product.h"

#include <algorithm>
#include <type_traits>

#include "base/bytes.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matrix_product.cc"
// clang-format off: what follows foreach_target.h is compiled once per target
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

#ifndef SWARMLINE_MATRIX_PRODUCT_ONCE
#define SWARMLINE_MATRIX_PRODUCT_ONCE
namespace swarmline::kernels {

// A panel of the right factor (kInner x 192 bytes) stays in the first-level cache, packed blocks of
// both factors in the second.
inline constexpr std::size_t kTileRows = 4;
inline constexpr std::size_t kInnerBlock = 128;
inline constexpr std::size_t kRowsBlock = 96;
inline constexpr std::size_t kPanels = 16;       // of the right factor, packed at a time
inline constexpr std::size_t kPanelBytes = 192;  // columns of a panel, at most: three of AVX-512

template <typename T>
struct ProductScratch {
  T* left;   // kRowsBlock * kInnerBlock
  T* right;  // kPanels * kInnerBlock * kPanelBytes / sizeof(T)
};
// The right factor's element (k, j) is at right[k * inner_stride + j * column_stride].
template <typename T>
struct Product {
  const T* left;
  const T* right;
  T* out;
  std::size_t rows, inner, columns;
  std::size_t inner_stride, column_stride;
  bool lower_only;  // tiles above the diagonal are left out
};

}  // namespace swarmline::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace swarmline::kernels::HWY_NAMESPACE {
namespace {

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
namespace hn = hwy::HWY_NAMESPACE;

template <typename T>
constexpr std::size_t panel_columns() {
  return 3 * HWY_LANES(T);
}

// c (4 rows of `stride`) goes on with the chains of `inner` packed elements.
template <typename T>
HWY_INLINE void sum_tile(const T* HWY_RESTRICT a, const T* HWY_RESTRICT b, std::size_t inner,
                         T* HWY_RESTRICT c, std::size_t stride) {
  const hn::ScalableTag<T> d;
  constexpr std::size_t kLanes = HWY_LANES(T);
  const auto at = [=](std::size_t row, std::size_t vector)
                      HWY_ATTR { return c + row * stride + vector * kLanes; };
  auto c00 = hn::LoadU(d, at(0, 0)), c01 = hn::LoadU(d, at(0, 1)), c02 = hn::LoadU(d, at(0, 2));
  auto c10 = hn::LoadU(d, at(1, 0)), c11 = hn::LoadU(d, at(1, 1)), c12 = hn::LoadU(d, at(1, 2));
  auto c20 = hn::LoadU(d, at(2, 0)), c21 = hn::LoadU(d, at(2, 1)), c22 = hn::LoadU(d, at(2, 2));
  auto c30 = hn::LoadU(d, at(3, 0)), c31 = hn::LoadU(d, at(3, 1)), c32 = hn::LoadU(d, at(3, 2));
  for (std::size_t k = 0; k < inner; ++k, a += kTileRows, b += 3 * kLanes) {
    const auto b0 = hn::LoadU(d, b);
    const auto b1 = hn::LoadU(d, b + kLanes);
    const auto b2 = hn::LoadU(d, b + 2 * kLanes);
    auto left = hn::Set(d, a[0]);
    c00 = hn::MulAdd(left, b0, c00);
    c01 = hn::MulAdd(left, b1, c01);
    c02 = hn::MulAdd(left, b2, c02);
    left = hn::Set(d, a[1]);
    c10 = hn::MulAdd(left, b0, c10);
    c11 = hn::MulAdd(left, b1, c11);
    c12 = hn::MulAdd(left, b2, c12);
    left = hn::Set(d, a[2]);
    c20 = hn::MulAdd(left, b0, c20);
    c21 = hn::MulAdd(left, b1, c21);
    c22 = hn::MulAdd(left, b2, c22);
    left = hn::Set(d, a[3]);
    c30 = hn::MulAdd(left, b0, c30);
    c31 = hn::MulAdd(left, b1, c31);
    c32 = hn::MulAdd(left, b2, c32);
  }
  hn::StoreU(c00, d, at(0, 0));
  hn::StoreU(c01, d, at(0, 1));
  hn::StoreU(c02, d, at(0, 2));
  hn::StoreU(c10, d, at(1, 0));
  hn::StoreU(c11, d, at(1, 1));
  hn::StoreU(c12, d, at(1, 2));
  hn::StoreU(c20, d, at(2, 0));
  hn::StoreU(c21, d, at(2, 1));
  hn::StoreU(c22, d, at(2, 2));
  hn::StoreU(c30, d, at(3, 0));
  hn::StoreU(c31, d, at(3, 1));
  hn::StoreU(c32, d, at(3, 2));
}

#else

template <typename T>
constexpr std::size_t panel_columns() {
  return 16;
}

HWY_INLINE float fused(float a, float b, float sum) {
  return __builtin_fmaf(a, b, sum);
}
HWY_INLINE double fused(double a, double b, double sum) {
  return __builtin_fma(a, b, sum);
}

template <typename T>
HWY_INLINE void sum_tile(const T* HWY_RESTRICT a, const T* HWY_RESTRICT b, std::size_t inner,
                         T* HWY_RESTRICT c, std::size_t stride) {
  constexpr std::size_t kColumns = panel_columns<T>();
  for (std::size_t k = 0; k < inner; ++k)
    for (std::size_t i = 0; i < kTileRows; ++i)
      for (std::size_t j = 0; j < kColumns; ++j)
        c[i * stride + j] = fused(a[k * kTileRows + i], b[k * kColumns + j], c[i * stride + j]);
}

#endif

// Where the packed blocks lie in the product.
struct Block {
  std::size_t row, rows;
  std::size_t k, inner;
  std::size_t column, columns;
};

// Panels of four rows, k by k; rows that are not there are zero.
template <typename T>
void pack_left(const Product<T>& p, const Block& block, T* HWY_RESTRICT packed) {
  for (std::size_t i = 0; i < block.rows; i += kTileRows)
    for (std::size_t k = 0; k < block.inner; ++k)
      for (std::size_t r = i; r < i + kTileRows; ++r)
        *packed++ = r < block.rows ? p.left[(block.row + r) * p.inner + block.k + k] : T{0};
}

// Panels of columns, k by k; columns that are not there are zero.
template <typename T>
void pack_right(const Product<T>& p, const Block& block, T* HWY_RESTRICT packed) {
  constexpr std::size_t kColumns = panel_columns<T>();
  for (std::size_t j = 0; j < block.columns; j += kColumns) {
    const std::size_t count = block.columns - j < kColumns ? block.columns - j : kColumns;
    for (std::size_t k = 0; k < block.inner; ++k) {
      const T* const from =
          p.right + (block.k + k) * p.inner_stride + (block.column + j) * p.column_stride;
      for (std::size_t c = 0; c < count; ++c) packed[c] = from[c * p.column_stride];
      for (std::size_t c = count; c < kColumns; ++c) packed[c] = T{0};
      packed += kColumns;
    }
  }
}

// A tile that sticks out of the product is summed beside it.
template <typename T>
void sum_edge(const T* a, const T* b, std::size_t inner, T* c, std::size_t stride, std::size_t rows,
              std::size_t columns) {
  constexpr std::size_t kColumns = panel_columns<T>();
  T tile[kTileRows * kColumns] = {};
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < columns; ++j) tile[i * kColumns + j] = c[i * stride + j];
  sum_tile(a, b, inner, tile, kColumns);
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < columns; ++j) c[i * stride + j] = tile[i * kColumns + j];
}

template <typename T>
void sum_block(const Product<T>& p, const Block& block, const ProductScratch<T>& scratch) {
  constexpr std::size_t kColumns = panel_columns<T>();
  for (std::size_t j = 0; j < block.columns; j += kColumns) {
    const T* const b = scratch.right + j * block.inner;
    const std::size_t columns = block.columns - j < kColumns ? block.columns - j : kColumns;
    for (std::size_t i = 0; i < block.rows; i += kTileRows) {
      const std::size_t row = block.row + i;
      if (p.lower_only && block.column + j > row + kTileRows - 1) continue;
      const std::size_t rows = block.rows - i < kTileRows ? block.rows - i : kTileRows;
      const T* const a = scratch.left + i * block.inner;
      T* const c = p.out + row * p.columns + block.column + j;
      if (rows == kTileRows && columns == kColumns) {
        sum_tile(a, b, block.inner, c, p.columns);
      } else {
        sum_edge(a, b, block.inner, c, p.columns, rows, columns);
      }
    }
  }
}

// `out` is zero.
template <typename T>
void sum_product(const Product<T>& p, const ProductScratch<T>& scratch) {
  constexpr std::size_t kColumnsBlock = kPanels * panel_columns<T>();
  const auto least = [](std::size_t a, std::size_t b) HWY_ATTR { return a < b ? a : b; };
  for (std::size_t column = 0; column < p.columns; column += kColumnsBlock) {
    for (std::size_t k = 0; k < p.inner; k += kInnerBlock) {
      Block block{.row = 0,
                  .rows = 0,
                  .k = k,
                  .inner = least(kInnerBlock, p.inner - k),
                  .column = column,
                  .columns = least(kColumnsBlock, p.columns - column)};
      pack_right(p, block, scratch.right);
      for (; block.row < p.rows; block.row += kRowsBlock) {
        block.rows = least(kRowsBlock, p.rows - block.row);
        if (p.lower_only && block.column > block.row + block.rows - 1) continue;
        pack_left(p, block, scratch.left);
        sum_block(p, block, scratch);
      }
    }
  }
}

void sum_product_f32(const Product<float>& p, const ProductScratch<float>& scratch) {
  sum_product(p, scratch);
}
void sum_product_f64(const Product<double>& p, const ProductScratch<double>& scratch) {
  sum_product(p, scratch);
}

}  // namespace
}  // namespace swarmline::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace swarmline::kernels {
namespace {

HWY_EXPORT(sum_product_f32);
HWY_EXPORT(sum_product_f64);

constexpr std::size_t kRightBytes = kPanels * kInnerBlock * kPanelBytes;
static_assert(kRightBytes + kRowsBlock * kInnerBlock * sizeof(double) <= kProductScratchBytes);

template <typename T>
void run(const Product<T>& p) {
  std::fill_n(p.out, p.rows * p.columns, T{0});
  Buffer right(kRightBytes);
  Buffer left(kRowsBlock * kInnerBlock * sizeof(T));
  const ProductScratch<T> scratch{.left = reinterpret_cast<T*>(left.data()),
                                  .right = reinterpret_cast<T*>(right.data())};
  if constexpr (std::is_same_v<T, float>) {
    HWY_DYNAMIC_DISPATCH(sum_product_f32)(p, scratch);
  } else {
    HWY_DYNAMIC_DISPATCH(sum_product_f64)(p, scratch);
  }
}

template <typename T>
void multiply(const T* a, const T* b, T* out, std::size_t rows, std::size_t inner,
              std::size_t columns) {
  run<T>({.left = a,
          .right = b,
          .out = out,
          .rows = rows,
          .inner = inner,
          .columns = columns,
          .inner_stride = columns,
          .column_stride = 1,
          .lower_only = false});
}

template <typename T>
void multiply_transposed(const T* a, T* out, std::size_t rows, std::size_t inner) {
  run<T>({.left = a,
          .right = a,
          .out = out,
          .rows = rows,
          .inner = inner,
          .columns = rows,
          .inner_stride = 1,
          .column_stride = inner,
          .lower_only = true});
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = i + 1; j < rows; ++j) out[i * rows + j] = out[j * rows + i];
}

}  // namespace

void product(const float* a, const float* b, float* out, std::size_t rows, std::size_t inner,
             std::size_t columns) {
  multiply(a, b, out, rows, inner, columns);
}
void product(const double* a, const double* b, double* out, std::size_t rows, std::size_t inner,
             std::size_t columns) {
  multiply(a, b, out, rows, inner, columns);
}
void product_with_transposed(const float* a, float* out, std::size_t rows, std::size_t inner) {
  multiply_transposed(a, out, rows, inner);
}
void product_with_transposed(const double* a, double* out, std::size_t rows, std::size_t inner) {
  multiply_transposed(a, out, rows, inner);
}

}  // namespace swarmline::kernels
#endif  // HWY_ONCE
