// How long matrix products take: of a layer on a CUDA device, by cuBLASLt and by libtorch; a plain
// one on any.
//   Errors: kUserMistake: no such device, or no CUDA side. kDevice: it failed.
//   Thread: one at a time, the device's. Cost: some hundred products of each kind.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace swarmline {

struct ProductShape {
  std::int64_t rows = 0;  // tokens
  std::int64_t outputs = 0;
  std::int64_t inputs = 0;
};

// Microseconds, the fastest of several rounds. Operands of bf16 products are bf16, sums of weight
// gradients fp32; of fp8 products e4m3, gradients e5m2. libtorch's time beside 8-bit products is
// that of its bf16 product.
struct ProductTime {
  std::string kind;  // "product", "gelu", "input gradient", "gelu input gradient",
                     // "weight gradient", "fp8", "fp8 with codes of x", "int8",
                     // "fp8 input gradient"
  ProductShape shape;
  double cublaslt_us = 0;
  double libtorch_us = 0;
  double teraflops() const {  // of cuBLASLt's
    return 2e-6 * static_cast<double>(shape.rows) * static_cast<double>(shape.outputs) *
           static_cast<double>(shape.inputs) / cublaslt_us;
  }
};

Result<std::vector<ProductTime>> measure_products(int device,
                                                  const std::vector<ProductShape>& shapes);

// One product by libtorch, in the dtype that stages compute in (fp32, on CUDA bf16), with the
// threads that set_compute_threads() last said: the median of `rounds`, after a fifth of a
// second to warm up, in seconds of `clock`.
Result<double> plain_product_seconds(const std::string& device, const ProductShape& shape,
                                     int rounds, const std::function<double()>& clock);

}  // namespace swarmline
