// Products are chains of fused multiply-adds over rising k, on every instruction set.
#include "kernels/matrix_product.h"

#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/kernels/quant_paths.h"
#include "tests/kernels/samples.h"

namespace swarmline::kernels {
namespace {

using testing::for_each_quant_path;
using testing::samples;

struct Sides {
  std::size_t rows, inner, columns;
};
// Around the sides of tiles, panels and blocks.
const std::vector<Sides> kSides = {{0, 3, 2},     {1, 1, 1},     {3, 0, 5},
                                   {4, 128, 48},  {5, 7, 49},    {97, 129, 50},
                                   {96, 257, 24}, {33, 64, 769}, {130, 5, 12}};

template <typename T>
T chain(const T* a, const T* b, std::size_t stride, std::size_t inner) {
  T sum = 0;
  for (std::size_t k = 0; k < inner; ++k) sum = std::fma(a[k], b[k * stride], sum);
  return sum;
}

template <typename T>
class MatrixProduct : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(MatrixProduct, Types);

// One element more than is read, so that there is one to point to.
TYPED_TEST(MatrixProduct, IsTheChainOfEveryElement) {
  for_each_quant_path([](const std::string& path) {
    for (const auto& [rows, inner, columns] : kSides) {
      const std::vector<TypeParam> a = samples<TypeParam>(rows * inner + 1, 1);
      const std::vector<TypeParam> b = samples<TypeParam>((inner + 1) * columns, 2);
      std::vector<TypeParam> out(rows * columns, TypeParam{7});
      product(a.data(), b.data(), out.data(), rows, inner, columns);
      for (std::size_t i = 0; i < rows; ++i)
        for (std::size_t j = 0; j < columns; ++j)
          ASSERT_EQ(out[i * columns + j], chain(a.data() + i * inner, b.data() + j, columns, inner))
              << path << " " << rows << "x" << inner << "x" << columns << " at " << i << ", " << j;
    }
  });
}

TYPED_TEST(MatrixProduct, WithTheTransposedIsTheChainAndSymmetric) {
  for_each_quant_path([](const std::string& path) {
    for (const auto& [rows, inner, columns] : kSides) {
      const std::vector<TypeParam> a = samples<TypeParam>(rows * inner + 1, 3);
      std::vector<TypeParam> out(rows * rows, TypeParam{7});
      product_with_transposed(a.data(), out.data(), rows, inner);
      for (std::size_t i = 0; i < rows; ++i)
        for (std::size_t j = 0; j < rows; ++j)
          ASSERT_EQ(out[i * rows + j], chain(a.data() + i * inner, a.data() + j * inner, 1, inner))
              << path << " " << rows << "x" << inner << " at " << i << ", " << j;
    }
  });
}

}  // namespace
}  // namespace swarmline::kernels
