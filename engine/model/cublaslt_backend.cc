#include "engine/model/cublaslt_backend.h"

#include <map>
#include <utility>

#include <c10/core/impl/VirtualGuardImpl.h>

#include "base/check.h"
#include "engine/model/device_kernels.h"

namespace swarmline {

namespace {

constexpr int kTimingRounds = 3;
constexpr int kTimingRepeats = 10;
constexpr std::int64_t kFp8WidthUnit = 16;   // of the matrix units: bytes of a row
constexpr std::int64_t kInnerWidthUnit = 8;  // of GELU's second result
constexpr std::int64_t kInt8WidthUnit = 4;
constexpr std::uintptr_t kPointerUnit = 16;  // bytes

// Streams are libtorch's; the engine never leaves the default one, which has the number 0.
void* current_stream(at::Device device) {
  const c10::impl::VirtualGuardImpl guard(device.type());
  const c10::Stream stream = guard.getStream(device);
  return stream.id() == 0 ? nullptr : stream.native_handle();
}

LtType lt_type(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return LtType::kF32;
    case at::kHalf:
      return LtType::kF16;
    default:
      SWARMLINE_CHECK(type == at::kBFloat16);
      return LtType::kBF16;
  }
}

LtType lt_type(RowFormat format) {
  switch (format) {
    case RowFormat::kE4M3:
      return LtType::kE4M3;
    case RowFormat::kE5M2:
      return LtType::kE5M2;
    case RowFormat::kInt8:
      return LtType::kInt8;
  }
  SWARMLINE_CHECK(false);
}

// Of a device that find_device() found, which opened the library.
const DeviceKernels& opened_kernels() {
  const auto kernels = device_kernels();
  SWARMLINE_CHECK_MSG(kernels.has_value(), "a CUDA device without the program's CUDA side");
  return **kernels;
}

void must_launch(const char* what, const char* error) {
  TORCH_CHECK(error == nullptr, what, " could not be launched: ", error);
}

void* pointer(const at::Tensor& tensor) {
  return const_cast<void*>(tensor.const_data_ptr());
}

bool plain(const at::Tensor& tensor) {
  return tensor.is_contiguous() &&
         reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr()) % kPointerUnit == 0;
}
bool plain(std::initializer_list<at::Tensor> tensors) {
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined() && !plain(tensor)) return false;
  }
  return true;
}

class CublasLtBackend final : public LinearBackend {
 public:
  CublasLtBackend(at::Device device, std::unique_ptr<CublasLt> lt)
      : device_(device), lt_(std::move(lt)) {}

  at::Tensor product(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias) override;
  at::Tensor gelu_product(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias,
                          at::Tensor& inner) override;
  at::Tensor input_gradient(const at::Tensor& g, const at::Tensor& w) override;
  at::Tensor gelu_input_gradient(const at::Tensor& g, const at::Tensor& w, const at::Tensor& inner,
                                 at::Tensor* column_sums) override;
  void add_weight_gradient(at::Tensor sum, const at::Tensor& g, const at::Tensor& x,
                           double scale) override;
  at::Tensor scaled_product(const ScaledRows& x, const ScaledRows& w, const at::Tensor& bias,
                            at::ScalarType type) override;

 private:
  at::Tensor fp8_product_in_bf16(const ScaledRows& x, const ScaledRows& w, const at::Tensor& bias,
                                 at::ScalarType type);
  void run(const LtProblem& problem, const LtOperands& operands) {
    TORCH_CHECK(lt_->run(problem, operands, current_stream(device_)), lt_->error());
  }
  bool can(const LtProblem& problem);

  const at::Device device_;
  std::unique_ptr<CublasLt> lt_;
  std::map<LtProblem, bool> supported_;
};

bool CublasLtBackend::can(const LtProblem& problem) {
  const auto known = supported_.find(problem);
  if (known != supported_.end()) return known->second;
  if (supported_.size() >= kLtPlansMax) supported_.clear();
  const bool supported = lt_->supports(problem);
  supported_[problem] = supported;
  return supported;
}

at::Tensor CublasLtBackend::product(const at::Tensor& x, const at::Tensor& w,
                                    const at::Tensor& bias) {
  const auto theirs = [&] { return LinearBackend::product(x, w, bias); };
  if (x.scalar_type() == at::kDouble || x.size(0) == 0 || !plain({x, w, bias})) return theirs();
  const LtType type = lt_type(x.scalar_type());
  const LtProblem problem{.form = LtForm::kForward,
                          .rows = x.size(0),
                          .outputs = w.size(0),
                          .inputs = w.size(1),
                          .left = type,
                          .right = type,
                          .result = type,
                          .epilogue = bias.defined() ? LtEpilogue::kBias : LtEpilogue::kNone};
  if (!can(problem)) return theirs();
  at::Tensor y = at::empty({x.size(0), w.size(0)}, x.options());
  LtOperands operands{.left = pointer(x), .right = pointer(w), .result = pointer(y)};
  if (bias.defined()) operands.bias = pointer(bias);
  run(problem, operands);
  return y;
}

at::Tensor CublasLtBackend::gelu_product(const at::Tensor& x, const at::Tensor& w,
                                         const at::Tensor& bias, at::Tensor& inner) {
  const auto theirs = [&] { return LinearBackend::gelu_product(x, w, bias, inner); };
  if (x.scalar_type() == at::kDouble || x.size(0) == 0 || !plain({x, w, bias}) ||
      w.size(0) % kInnerWidthUnit != 0) {
    return theirs();
  }
  const LtType type = lt_type(x.scalar_type());
  const LtProblem problem{.form = LtForm::kForward,
                          .rows = x.size(0),
                          .outputs = w.size(0),
                          .inputs = w.size(1),
                          .left = type,
                          .right = type,
                          .result = type,
                          .epilogue = bias.defined() ? LtEpilogue::kGeluBias : LtEpilogue::kGelu};
  if (!can(problem)) return theirs();
  at::Tensor y = at::empty({x.size(0), w.size(0)}, x.options());
  inner = at::empty_like(y);
  LtOperands operands{.left = pointer(x), .right = pointer(w), .result = pointer(y)};
  operands.inner = pointer(inner);
  if (bias.defined()) operands.bias = pointer(bias);
  run(problem, operands);
  return y;
}

at::Tensor CublasLtBackend::input_gradient(const at::Tensor& g, const at::Tensor& w) {
  const auto theirs = [&] { return LinearBackend::input_gradient(g, w); };
  if (g.scalar_type() == at::kDouble || g.size(0) == 0 || !plain({g, w})) return theirs();
  const LtType type = lt_type(g.scalar_type());
  const LtProblem problem{.form = LtForm::kInputGradient,
                          .rows = g.size(0),
                          .outputs = w.size(0),
                          .inputs = w.size(1),
                          .left = type,
                          .right = type,
                          .result = type};
  if (!can(problem)) return theirs();
  at::Tensor dx = at::empty({g.size(0), w.size(1)}, g.options());
  run(problem, {.left = pointer(g), .right = pointer(w), .result = pointer(dx)});
  return dx;
}

at::Tensor CublasLtBackend::gelu_input_gradient(const at::Tensor& g, const at::Tensor& w,
                                                const at::Tensor& inner, at::Tensor* column_sums) {
  const auto theirs = [&] {
    const at::Tensor result = at::gelu_backward(LinearBackend::input_gradient(g, w), inner, "tanh");
    if (column_sums != nullptr) *column_sums = result.sum(0);
    return result;
  };
  if (g.scalar_type() == at::kDouble || g.size(0) == 0 || !plain({g, w, inner}) ||
      w.size(1) % kInnerWidthUnit != 0) {
    return theirs();
  }
  const LtType type = lt_type(g.scalar_type());
  const LtProblem problem{.form = LtForm::kInputGradient,
                          .rows = g.size(0),
                          .outputs = w.size(0),
                          .inputs = w.size(1),
                          .left = type,
                          .right = type,
                          .result = type,
                          .epilogue = LtEpilogue::kDGelu};
  if (!can(problem)) return theirs();
  at::Tensor dx = at::empty({g.size(0), w.size(1)}, g.options());
  LtOperands operands{.left = pointer(g), .right = pointer(w), .result = pointer(dx)};
  operands.inner = pointer(inner);
  run(problem, operands);
  // Not in the product: cuBLASLt then takes a pass of its own for the sums, seven times as long.
  if (column_sums != nullptr) *column_sums = dx.sum(0);
  return dx;
}

void CublasLtBackend::add_weight_gradient(at::Tensor sum, const at::Tensor& g, const at::Tensor& x,
                                          double scale) {
  const auto theirs = [&] { LinearBackend::add_weight_gradient(sum, g, x, scale); };
  if (sum.scalar_type() == at::kDouble || g.size(0) == 0 || !plain({sum, g, x})) return theirs();
  const LtProblem problem{.form = LtForm::kWeightGradient,
                          .rows = g.size(0),
                          .outputs = g.size(1),
                          .inputs = x.size(1),
                          .left = lt_type(g.scalar_type()),
                          .right = lt_type(x.scalar_type()),
                          .result = lt_type(sum.scalar_type()),
                          .accumulate = true};
  if (!can(problem)) return theirs();
  run(problem, {.left = pointer(g),
                .right = pointer(x),
                .result = pointer(sum),
                .scale = static_cast<float>(scale)});
}

// The codes' numbers are exact in bf16, so that a device without fp8 products (or with others than
// by rows) computes the same, but for the order of the sums.
at::Tensor CublasLtBackend::fp8_product_in_bf16(const ScaledRows& x, const ScaledRows& w,
                                                const at::Tensor& bias, at::ScalarType type) {
  const LtProblem problem{.form = LtForm::kForward,
                          .rows = x.codes.size(0),
                          .outputs = w.codes.size(0),
                          .inputs = w.codes.size(1),
                          .left = LtType::kBF16,
                          .right = LtType::kBF16,
                          .result = LtType::kF32};
  if (problem.rows == 0 || !lt_->supports(problem)) {
    return LinearBackend::scaled_product(x, w, bias, type);
  }
  const at::Tensor left = code_numbers(x).to(at::kBFloat16);
  const at::Tensor right = code_numbers(w).to(at::kBFloat16);
  at::Tensor y = at::empty({problem.rows, problem.outputs}, x.scales.options());
  run(problem, {.left = pointer(left), .right = pointer(right), .result = pointer(y)});
  y.mul_(x.scales.unsqueeze(1)).mul_(w.scales);
  if (bias.defined()) y.add_(bias.to(at::kFloat));
  return y.to(type);
}

at::Tensor CublasLtBackend::scaled_product(const ScaledRows& x, const ScaledRows& w,
                                           const at::Tensor& bias, at::ScalarType type) {
  SWARMLINE_CHECK(have_product(x.format, w.format));
  const bool integers = x.format == RowFormat::kInt8;
  const std::int64_t unit = integers ? kInt8WidthUnit : kFp8WidthUnit;
  const bool wide = integers || type == at::kDouble;
  LtProblem problem{.form = LtForm::kForward,
                    .rows = x.codes.size(0),
                    .outputs = w.codes.size(0),
                    .inputs = w.codes.size(1),
                    .left = lt_type(x.format),
                    .right = lt_type(w.format),
                    .result = integers ? LtType::kInt32 : lt_type(wide ? at::kFloat : type),
                    .row_scales = !integers};
  if (problem.rows == 0 || problem.inputs % unit != 0 || problem.outputs % unit != 0 ||
      !plain({x.codes, w.codes}) || !lt_->supports(problem)) {
    return integers ? LinearBackend::scaled_product(x, w, bias, type)
                    : fp8_product_in_bf16(x, w, bias, type);
  }
  const auto result_type = integers ? at::kInt : wide ? at::kFloat : type;
  at::Tensor y = at::empty({problem.rows, problem.outputs}, x.scales.options().dtype(result_type));
  LtOperands operands{.left = pointer(x.codes), .right = pointer(w.codes), .result = pointer(y)};
  operands.left_scales = static_cast<const float*>(pointer(x.scales));
  operands.right_scales = static_cast<const float*>(pointer(w.scales));
  if (!integers && bias.defined() && bias.scalar_type() != at::kDouble && plain(bias) &&
      lt_type(bias.scalar_type()) == bias_type(problem)) {
    LtProblem fused = problem;
    fused.epilogue = LtEpilogue::kBias;
    if (lt_->supports(fused)) {
      operands.bias = pointer(bias);
      run(fused, operands);
      return y;
    }
  }
  run(problem, operands);
  if (integers) y = y.to(at::kFloat).mul_(x.scales.unsqueeze(1)).mul_(w.scales);
  if (bias.defined()) y.add_(bias.to(y.scalar_type()));
  return y.to(type);
}

}  // namespace

std::unique_ptr<LinearBackend> make_cublaslt_backend(at::Device device, std::string& error) {
  const int index = device.has_index() ? device.index() : 0;
  const auto kernels = device_kernels();
  if (!kernels) {
    error = kernels.error().what;
    return nullptr;
  }
  std::unique_ptr<CublasLt> lt = (*kernels)->make_cublaslt(index, error);
  if (!lt) return nullptr;
  return std::make_unique<CublasLtBackend>(device, std::move(lt));
}

void scale_rows_on_device(const at::Tensor& x, ScaledRows& rows) {
  const auto type = x.scalar_type() == at::kBFloat16 ? cuda::RowType::kBF16 : cuda::RowType::kF32;
  must_launch("a row quantization",
              opened_kernels().quantize_rows(
                  rows.format, x.const_data_ptr(), type, static_cast<std::size_t>(x.size(0)),
                  static_cast<std::size_t>(x.size(1)), rows.codes.data_ptr<std::uint8_t>(),
                  rows.scales.data_ptr<float>(), current_stream(x.device())));
}

at::Tensor dropout_on_device(const at::Tensor& x, const DropoutMask& mask) {
  const cuda::DeviceDropout device_mask{.key = {mask.key[0], mask.key[1]},
                                        .layer = mask.layer,
                                        .site = static_cast<std::uint32_t>(mask.site),
                                        .probability = mask.probability};
  const auto type = x.scalar_type() == at::kBFloat16 ? cuda::DropoutType::kBF16
                    : x.scalar_type() == at::kDouble ? cuda::DropoutType::kF64
                                                     : cuda::DropoutType::kF32;
  const at::Tensor in = type == cuda::DropoutType::kF32 ? x.to(at::kFloat) : x;
  at::Tensor out = at::empty_like(in);
  must_launch("dropout", opened_kernels().apply_dropout(
                             device_mask, type, static_cast<std::size_t>(in.numel()),
                             in.const_data_ptr(), out.data_ptr(), current_stream(x.device())));
  return out.to(x.scalar_type());
}

namespace {

cuda::SwiGluRows swiglu_rows(const at::Tensor& x) {
  return {
      .type = x.scalar_type() == at::kBFloat16 ? cuda::SwiGluType::kBF16 : cuda::SwiGluType::kF32,
      .rows = static_cast<std::size_t>(x.size(0)),
      .width = static_cast<std::size_t>(x.size(1) / 2),
      .x = x.const_data_ptr()};
}

cuda::CrossEntropyRows cross_entropy_rows(const at::Tensor& logits, const at::Tensor& targets,
                                          const at::Tensor& log_sums) {
  return {.type = logits.scalar_type() == at::kBFloat16 ? cuda::LogitsType::kBF16
                                                        : cuda::LogitsType::kF32,
          .rows = static_cast<std::size_t>(logits.size(0)),
          .width = static_cast<std::size_t>(logits.size(1)),
          .logits = logits.const_data_ptr(),
          .targets = static_cast<const std::int32_t*>(targets.const_data_ptr()),
          .log_sums = log_sums.data_ptr<float>()};
}

}  // namespace

at::Tensor swiglu_on_device(const at::Tensor& x) {
  const at::Tensor rows = x.contiguous();
  at::Tensor made = at::empty({x.size(0), x.size(1) / 2}, x.options());
  must_launch("SwiGLU", opened_kernels().swiglu(swiglu_rows(rows), made.data_ptr(),
                                                current_stream(x.device())));
  return made;
}

at::Tensor swiglu_gradient_on_device(const at::Tensor& x, const at::Tensor& gradient) {
  const at::Tensor rows = x.contiguous();
  const at::Tensor given = gradient.to(x.scalar_type()).contiguous();
  at::Tensor made = at::empty_like(rows);
  must_launch("the gradient of SwiGLU",
              opened_kernels().swiglu_gradient(swiglu_rows(rows), given.const_data_ptr(),
                                               made.data_ptr(), current_stream(x.device())));
  return made;
}

std::pair<at::Tensor, at::Tensor> cross_entropy_on_device(const at::Tensor& logits,
                                                          const at::Tensor& targets) {
  const at::Tensor losses = at::empty({logits.size(0)}, logits.options().dtype(at::kDouble));
  const at::Tensor log_sums = at::empty({logits.size(0)}, logits.options().dtype(at::kFloat));
  must_launch("a loss", opened_kernels().cross_entropy(
                            cross_entropy_rows(logits, targets, log_sums),
                            losses.data_ptr<double>(), current_stream(logits.device())));
  return {losses, log_sums};
}

at::Tensor cross_entropy_gradient_on_device(const at::Tensor& logits, const at::Tensor& targets,
                                            const at::Tensor& log_sums, const at::Tensor& factor) {
  at::Tensor gradient = at::empty_like(logits);
  must_launch("the gradient of a loss", opened_kernels().cross_entropy_gradient(
                                            cross_entropy_rows(logits, targets, log_sums),
                                            static_cast<const double*>(factor.const_data_ptr()),
                                            gradient.data_ptr(), current_stream(logits.device())));
  return gradient;
}

double microseconds_on_device(at::Device device, const std::function<void()>& body) {
  return opened_kernels().microseconds(current_stream(device), kTimingRounds, kTimingRepeats, body);
}

}  // namespace swarmline
