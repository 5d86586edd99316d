// What a pass gives: a tensor and a number, on the host; or, of a CUDA device with a codec, on
// their way there when the pass was begun, and a sample that stays.
//   Thread: as begun passes, and as samples (compression/measure.h).
//   Errors: those of the codec; kDeviceLost of a device that was waited for.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <c10/core/impl/VirtualGuardImpl.h>

#include "base/check.h"
#include "compression/device_codec.h"
#include "engine/model/device_kernels.h"
#include "engine/model/libtorch.h"
#include "engine/model/stage_model.h"

namespace swarmline {

// fp32 or bf16, without gaps.
inline DeviceValues device_values(const at::Tensor& tensor) {
  SWARMLINE_CHECK(tensor.is_contiguous());
  const bool narrow = tensor.scalar_type() == at::kBFloat16;
  SWARMLINE_CHECK(narrow || tensor.scalar_type() == at::kFloat);
  return {.at = static_cast<DeviceAddress>(tensor.data_ptr()),
          .elements = static_cast<std::uint64_t>(tensor.numel()),
          .dtype = narrow ? DType::kBF16 : DType::kF32};
}

// Where a device's tensor is, once all that was queued to make it is done: zeros may be on their
// way yet, where no job whose end was waited for has added to them.
inline DeviceAddress made_at(const at::Tensor& tensor) {
  const at::Device device = tensor.device();
  c10::impl::VirtualGuardImpl(device.type()).getStream(device).synchronize();
  return static_cast<DeviceAddress>(tensor.data_ptr());
}

// In the device's memory, measured by its codec.
class DeviceSample final : public TensorSample {
 public:
  DeviceSample(at::Tensor values, std::shared_ptr<DeviceCodec> codec)
      : values_(std::move(values)), codec_(std::move(codec)) {}
  std::uint64_t elements() const override { return static_cast<std::uint64_t>(values_.numel()); }
  Result<CodecMeasurement> measure(const CodecSpec& codec,
                                   const kernels::StochasticKey* key) const override {
    return codec_->measure(codec, device_values(values_), key);
  }

 private:
  const at::Tensor values_;
  const std::shared_ptr<DeviceCodec> codec_;
};

// What has failed once fails again where the device is lost.
inline Error judged_on_device(Error error) {
  if (error.code != ErrorCode::kDevice) return error;
  const auto kernels = device_kernels();
  const char* const fault = kernels ? (*kernels)->device_fault() : nullptr;
  if (fault == nullptr) return error;
  return {ErrorCode::kDeviceLost, "the device is lost (" + std::string(fault) + "): " + error.what};
}

// Take(output, wire buffer, number) completes the output.
template <typename Output, typename Take>
class DevicePass final : public Begun<Output> {
 public:
  DevicePass(Output output, std::unique_ptr<LeavingWire> leaving, Take take)
      : output_(std::move(output)), leaving_(std::move(leaving)), take_(std::move(take)) {}
  Result<void> computed() override {
    auto made = leaving_->made();
    if (!made) made.error() = judged_on_device(std::move(made).error());
    return made;
  }
  Result<Output> wait() override {
    auto wire = leaving_->wait();
    if (!wire) return std::unexpected(judged_on_device(std::move(wire).error()));
    take_(output_, std::move(*wire), leaving_->number());
    return std::move(output_);
  }

 private:
  Output output_;
  std::unique_ptr<LeavingWire> leaving_;
  Take take_;
};

inline Buffer copied_out(const at::Tensor& tensor) {
  const at::Tensor host = tensor.to(at::kCPU).contiguous();
  return Buffer::copy_of({static_cast<const std::byte*>(host.const_data_ptr()), host.nbytes()});
}

inline Result<std::unique_ptr<LeavingWire>> begin_to_leave(
    const std::shared_ptr<DeviceCodec>& codec, const at::Tensor& tensor, const WireRequest& as_wire,
    const double* number, TensorSamplePtr& sample) {
  const at::Tensor values = tensor.contiguous().view(-1);
  const auto sampled = static_cast<std::int64_t>(as_wire.sample_elements);
  if (sampled != 0) {
    const at::Tensor beginning = values.narrow(0, 0, std::min(values.numel(), sampled));
    sample = std::make_shared<DeviceSample>(beginning.clone(), codec);
  }
  return codec->begin_encode(as_wire.codec, device_values(values),
                             as_wire.key ? &*as_wire.key : nullptr, number);
}

// `tensor`: null: the number alone. As values without a codec, or where no wire is asked for.
template <typename Output, typename Take>
BegunPass<Output> give(const std::shared_ptr<DeviceCodec>& codec, const at::Tensor* tensor,
                       const std::optional<WireRequest>& as_wire, const at::Tensor& number,
                       Take take) {
  Output output;
  if (codec == nullptr || (tensor != nullptr && !as_wire)) {
    SWARMLINE_CHECK_MSG(codec != nullptr || !as_wire, "a wire buffer of a model that makes none");
    take(output, tensor != nullptr ? copied_out(*tensor) : Buffer(), number.item<double>());
    return std::make_unique<EndedPass<Output>>(std::move(output));
  }
  const at::Tensor wide = number.to(at::kDouble);
  const auto* const at = wide.data_ptr<double>();
  auto leaving = tensor == nullptr ? codec->begin_number(at)
                                   : begin_to_leave(codec, *tensor, *as_wire, at, output.sample);
  if (!leaving) return std::unexpected(std::move(leaving).error());
  return std::make_unique<DevicePass<Output, Take>>(std::move(output), std::move(*leaving),
                                                    std::move(take));
}

}  // namespace swarmline
