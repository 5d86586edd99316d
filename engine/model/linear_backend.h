// Who computes a stage's matrix products: libtorch everywhere, cuBLASLt on CUDA wherever it can.
// One interface for native products, for those with GELU fused in, and for the products of 8-bit
// codes.
//   Shapes:    x (rows, inputs), w (outputs, inputs), y and g (rows, outputs), bias (outputs).
//   Dtypes:    operands of one product have one dtype, which is the result's; sums to add to may be
//              wider. GELU is the tanh form.
//   Choice:    by kind, shape and device alone, never by a clock: peers of a stage, and a swarm and
//              its reference, round alike.
//   Ownership: a backend outlives the graphs that use it. Thread: one at a time, the device's.
//   Errors:    libtorch's exceptions.
#pragma once

#include <memory>
#include <optional>

#include "engine/model/libtorch.h"
#include "engine/model/row_codes.h"

namespace swarmline {

// A matrix by rows, as row_codes.h defines it.
struct ScaledRows {
  at::Tensor codes;   // (rows, width) uint8
  at::Tensor scales;  // (rows) fp32
  RowFormat format = RowFormat::kE4M3;
  bool defined() const { return codes.defined(); }
};
// Of an fp32 or bf16 matrix (another dtype: via fp32).
ScaledRows scaled_rows(const at::Tensor& x, RowFormat format);
// The numbers of the codes, without scales, in fp32.
at::Tensor code_numbers(const ScaledRows& rows);

class LinearBackend {
 public:
  virtual ~LinearBackend() = default;
  // x w^T + bias; bias may be undefined.
  virtual at::Tensor product(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias);
  // GELU of that; what it is taken of goes to `inner`.
  virtual at::Tensor gelu_product(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias,
                                  at::Tensor& inner);
  // g w.
  virtual at::Tensor input_gradient(const at::Tensor& g, const at::Tensor& w);
  // g w * GELU'(inner), and the sums of its columns if `column_sums` is given.
  virtual at::Tensor gelu_input_gradient(const at::Tensor& g, const at::Tensor& w,
                                         const at::Tensor& inner, at::Tensor* column_sums);
  // sum += scale * g^T x.
  virtual void add_weight_gradient(at::Tensor sum, const at::Tensor& g, const at::Tensor& x,
                                   double scale);
  // The product of row_codes.h plus bias (undefined: none), rounded once to `type`.
  virtual at::Tensor scaled_product(const ScaledRows& x, const ScaledRows& w,
                                    const at::Tensor& bias, at::ScalarType type);
};

// libtorch's own, for any device.
LinearBackend& torch_linear_backend();
// For a device; libtorch's for the CPU and where cuBLASLt does not start (logged).
std::unique_ptr<LinearBackend> make_linear_backend(at::Device device);

}  // namespace swarmline
