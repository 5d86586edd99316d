// cuBLASLt behind LinearBackend, and what else of engine/model runs on a CUDA device by itself.
//   Only for devices that find_device() found, whose kernels are opened.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "engine/model/dropout.h"
#include "engine/model/libtorch.h"
#include "engine/model/linear_backend.h"

namespace swarmline {

// cuBLASLt wherever it can. Null, and a sentence in `error`.
std::unique_ptr<LinearBackend> make_cublaslt_backend(at::Device device, std::string& error);

// Fills `rows` (allocated) from an fp32 or bf16 matrix on a CUDA device.
void scale_rows_on_device(const at::Tensor& x, ScaledRows& rows);
// The dropout mask of dropout.h times x, on a CUDA device.
at::Tensor dropout_on_device(const at::Tensor& x, const DropoutMask& mask);
// swiglu_device.h's, of x (N, 2 width), fp32 or bf16; the gradient is x's.
at::Tensor swiglu_on_device(const at::Tensor& x);
at::Tensor swiglu_gradient_on_device(const at::Tensor& x, const at::Tensor& gradient);
// cross_entropy_device.h's: losses (N) fp64 and log_sums (N) fp32 of logits (N, width), fp32 or
// bf16; and the gradient of the losses' sum times `factor`, a fp64 scalar on the device.
std::pair<at::Tensor, at::Tensor> cross_entropy_on_device(const at::Tensor& logits,
                                                          const at::Tensor& targets);
at::Tensor cross_entropy_gradient_on_device(const at::Tensor& logits, const at::Tensor& targets,
                                            const at::Tensor& log_sums, const at::Tensor& factor);
// Microseconds of one `body` on the device's current stream; negative: the device failed.
double microseconds_on_device(at::Device device, const std::function<void()>& body);

}  // namespace swarmline
