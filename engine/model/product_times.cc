#include "engine/model/product_times.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include "base/order_statistics.h"
#include "engine/model/cublaslt_backend.h"
#include "engine/model/find_device.h"
#include "engine/model/libtorch.h"

namespace swarmline {
namespace {

constexpr double kWarmUpSeconds = 0.2;

class Measurement {
 public:
  Measurement(at::Device device, std::unique_ptr<LinearBackend> lt, const ProductShape& shape)
      : device_(device),
        lt_(std::move(lt)),
        shape_(shape),
        x_(matrix(shape.rows, shape.inputs)),
        w_(matrix(shape.outputs, shape.inputs)),
        g_(matrix(shape.rows, shape.outputs)),
        bias_(matrix(1, shape.outputs).view({shape.outputs})) {}

  void native(std::vector<ProductTime>& times) {
    add(times, "product", [this](LinearBackend& by) { by.product(x_, w_, bias_); });
    add(times, "gelu", [this](LinearBackend& by) {
      at::Tensor inner;
      by.gelu_product(x_, w_, bias_, inner);
    });
    add(times, "input gradient", [this](LinearBackend& by) { by.input_gradient(g_, w_); });
    const at::Tensor inner = matrix(shape_.rows, shape_.inputs);
    add(times, "gelu input gradient", [&](LinearBackend& by) {
      at::Tensor sums;
      by.gelu_input_gradient(g_, w_, inner, &sums);
    });
    const at::Tensor sum =
        at::zeros({shape_.outputs, shape_.inputs}, x_.options().dtype(at::kFloat));
    add(times, "weight gradient",
        [&](LinearBackend& by) { by.add_weight_gradient(sum, g_, x_, 1); });
  }

  void eight_bits(std::vector<ProductTime>& times) {
    double theirs = microseconds([this] { torch_linear_backend().product(x_, w_, bias_); });
    const auto scaled = [&](const char* kind, RowFormat format, bool with_codes) {
      const ScaledRows w = scaled_rows(w_, format);
      const ScaledRows x = scaled_rows(x_, format);
      const double ours = microseconds([&] {
        lt_->scaled_product(with_codes ? scaled_rows(x_, format) : x, w, bias_, at::kBFloat16);
      });
      times.push_back({kind, shape_, ours, theirs});
    };
    scaled("fp8", RowFormat::kE4M3, false);
    scaled("fp8 with codes of x", RowFormat::kE4M3, true);
    scaled("int8", RowFormat::kInt8, false);
    theirs = microseconds([this] { torch_linear_backend().input_gradient(g_, w_); });
    const ScaledRows g = scaled_rows(g_, RowFormat::kE5M2);
    const ScaledRows transposed = scaled_rows(w_.t(), RowFormat::kE4M3);
    const double ours =
        microseconds([&] { lt_->scaled_product(g, transposed, {}, at::kBFloat16); });
    times.push_back({"fp8 input gradient", shape_, ours, theirs});
  }

 private:
  at::Tensor matrix(std::int64_t rows, std::int64_t columns) const {
    return at::randn({rows, columns}, at::TensorOptions(at::kBFloat16).device(device_));
  }
  double microseconds(const std::function<void()>& body) const {
    const double time = microseconds_on_device(device_, body);
    TORCH_CHECK(time >= 0, "the device could not be timed");
    return time;
  }
  void add(std::vector<ProductTime>& times, const char* kind,
           const std::function<void(LinearBackend&)>& body) {
    const double ours = microseconds([&] { body(*lt_); });
    const double theirs = microseconds([&] { body(torch_linear_backend()); });
    times.push_back({kind, shape_, ours, theirs});
  }

  at::Device device_;
  std::unique_ptr<LinearBackend> lt_;
  ProductShape shape_;
  at::Tensor x_, w_, g_, bias_;
};

}  // namespace

Result<std::vector<ProductTime>> measure_products(int device,
                                                  const std::vector<ProductShape>& shapes) {
  if (const auto found = find_device("cuda:" + std::to_string(device)); !found)
    return std::unexpected(found.error());
  std::vector<ProductTime> times;
  try {
    at::NoGradGuard no_graph;
    for (const ProductShape& shape : shapes) {
      const at::Device at_device(at::kCUDA, static_cast<at::DeviceIndex>(device));
      std::string error;
      auto lt = make_cublaslt_backend(at_device, error);
      if (!lt) return fail(ErrorCode::kDevice, error);
      Measurement measurement(at_device, std::move(lt), shape);
      measurement.native(times);
      measurement.eight_bits(times);
    }
  } catch (const c10::Error& error) {
    return fail(ErrorCode::kDevice, error.what_without_backtrace());
  }
  return times;
}

Result<double> plain_product_seconds(const std::string& device, const ProductShape& shape,
                                     int rounds, const std::function<double()>& clock) {
  const auto found = find_device(device);
  if (!found) return std::unexpected(found.error());
  try {
    at::NoGradGuard no_graph;
    const auto options =
        at::TensorOptions(found->is_cpu() ? at::kFloat : at::kBFloat16).device(*found);
    const at::Tensor x = at::randn({shape.rows, shape.inputs}, options);
    const at::Tensor w = at::randn({shape.outputs, shape.inputs}, options);
    at::Tensor out = at::empty({shape.rows, shape.outputs}, options);
    std::vector<double> seconds;
    const double warm = clock() + kWarmUpSeconds;
    for (bool first = true; seconds.size() < static_cast<std::size_t>(rounds); first = false) {
      const double start = clock();
      at::mm_out(out, x, w.t());
      if (found->is_cuda()) torch::cuda::synchronize(found->index());
      if (!first && start >= warm) seconds.push_back(clock() - start);
    }
    return median(std::move(seconds));
  } catch (const c10::Error& error) {
    return fail(ErrorCode::kDevice, error.what_without_backtrace());
  }
}

}  // namespace swarmline
