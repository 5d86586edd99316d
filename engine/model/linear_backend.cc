#include "engine/model/linear_backend.h"

#include "base/check.h"
#include "base/log.h"
#include "engine/model/cublaslt_backend.h"

namespace swarmline {
namespace {

constexpr std::int64_t kRowsPerPart = 16;

// acc * scale_x * scale_w + bias, in that order, each rounded on its own.
at::Tensor rescaled(at::Tensor sums, const ScaledRows& x, const ScaledRows& w,
                    const at::Tensor& bias) {
  sums.mul_(x.scales.unsqueeze(1)).mul_(w.scales);
  if (bias.defined()) sums.add_(bias.to(sums.scalar_type()));
  return sums;
}

}  // namespace

ScaledRows scaled_rows(const at::Tensor& x, RowFormat format) {
  const bool device = !x.is_cpu();
  const bool narrow = device && x.scalar_type() == at::kBFloat16;
  const at::Tensor in = (narrow ? x : x.to(at::kFloat)).contiguous();
  const auto bytes = in.options().dtype(at::kByte);
  ScaledRows rows{at::empty(in.sizes(), bytes),
                  at::empty({in.size(0)}, in.options().dtype(at::kFloat)), format};
  if (device) {
    scale_rows_on_device(in, rows);
    return rows;
  }
  const std::int64_t width = in.size(1);
  const auto* const from = static_cast<const float*>(in.const_data_ptr());
  auto* const codes = rows.codes.data_ptr<std::uint8_t>();
  auto* const scales = rows.scales.data_ptr<float>();
  at::parallel_for(0, in.size(0), kRowsPerPart, [&](std::int64_t begin, std::int64_t end) {
    quantize_rows(format, from + begin * width, static_cast<std::size_t>(end - begin),
                  static_cast<std::size_t>(width), codes + begin * width, scales + begin);
  });
  return rows;
}

at::Tensor code_numbers(const ScaledRows& rows) {
  if (rows.format == RowFormat::kInt8) return rows.codes.view(at::kChar).to(at::kFloat);
  const bool wide = rows.format == RowFormat::kE5M2;
  return rows.codes.view(wide ? at::kFloat8_e5m2 : at::kFloat8_e4m3fn).to(at::kFloat);
}

at::Tensor LinearBackend::product(const at::Tensor& x, const at::Tensor& w,
                                  const at::Tensor& bias) {
  return bias.defined() ? at::addmm(bias, x, w.t()) : at::mm(x, w.t());
}

at::Tensor LinearBackend::gelu_product(const at::Tensor& x, const at::Tensor& w,
                                       const at::Tensor& bias, at::Tensor& inner) {
  inner = product(x, w, bias);
  return at::gelu(inner, "tanh");
}

at::Tensor LinearBackend::input_gradient(const at::Tensor& g, const at::Tensor& w) {
  return at::mm(g, w);
}

at::Tensor LinearBackend::gelu_input_gradient(const at::Tensor& g, const at::Tensor& w,
                                              const at::Tensor& inner, at::Tensor* column_sums) {
  const at::Tensor result = at::gelu_backward(input_gradient(g, w), inner, "tanh");
  if (column_sums != nullptr) *column_sums = result.sum(0);
  return result;
}

// Without a temporary where dtypes agree.
void LinearBackend::add_weight_gradient(at::Tensor sum, const at::Tensor& g, const at::Tensor& x,
                                        double scale) {
  if (sum.scalar_type() == g.scalar_type()) {
    sum.addmm_(g.t(), x, 1, scale);
  } else if (g.is_cuda()) {
    // Not rounded before it is added, as cuBLASLt's is not.
    sum.add_(at::mm(g.t(), x, sum.scalar_type()), scale);
  } else {
    sum.add_(at::mm(g.t(), x), scale);
  }
}

// Sums of int8 products are exact in fp64, as in int32; those of fp8 are fp32 sums.
at::Tensor LinearBackend::scaled_product(const ScaledRows& x, const ScaledRows& w,
                                         const at::Tensor& bias, at::ScalarType type) {
  SWARMLINE_CHECK(have_product(x.format, w.format) && x.codes.size(1) == w.codes.size(1));
  const bool integers = x.format == RowFormat::kInt8;
  SWARMLINE_CHECK(!integers || x.codes.size(1) <= kInt8WidthMax);
  const at::ScalarType exact = integers ? at::kDouble : at::kFloat;
  const at::Tensor sums = at::mm(code_numbers(x).to(exact), code_numbers(w).to(exact).t());
  return rescaled(sums.to(at::kFloat), x, w, bias).to(type);
}

LinearBackend& torch_linear_backend() {
  static LinearBackend backend;
  return backend;
}

std::unique_ptr<LinearBackend> make_linear_backend(at::Device device) {
  if (!device.is_cpu()) {
    std::string error;
    if (auto backend = make_cublaslt_backend(device, error)) return backend;
    log(LogLevel::kWarn, "matrix products by libtorch alone: {}", error);
  }
  return std::make_unique<LinearBackend>();
}

}  // namespace swarmline
