// DeviceGradients on CUDA.

#include <cuda_runtime.h>

#include "base/check.h"
#include "compression/cuda_wire.h"
#include "compression/device_gradients_entry.h"
#include "kernels/cuda/cuda_lanes.h"
#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/quantize.cuh"

namespace swarmline {
namespace {

using kernels::StochasticKey;
using kernels::cuda::checked;
using kernels::cuda::DeviceMemory;
using kernels::cuda::kDefaultStream;

float* floats(DeviceAddress at) {
  return reinterpret_cast<float*>(at);
}

class CudaGradients final : public DeviceGradients {
 public:
  CudaGradients(int device, std::unique_ptr<kernels::Lanes> lanes)
      : device_(device), lanes_(std::move(lanes)) {}
  ~CudaGradients() override { cudaSetDevice(device_); }
  Result<void> begin() { return wires_.begin(); }

  bool encodes(const CodecSpec& codec) const override { return codec.kind != CodecKind::kNone; }
  Result<std::unique_ptr<LeavingWire>> begin_encode(const CodecSpec& codec, DeviceAddress values,
                                                    std::uint64_t n, const Feedback& feedback,
                                                    const StochasticKey* key) override;
  Result<void> decode(BytesView wire, DeviceAddress out, std::uint64_t n) override;
  Result<void> add(DeviceAddress a, DeviceAddress b, DeviceAddress sum, std::uint64_t n) override;

 private:
  Result<void> choose_device() { return checked(cudaSetDevice(device_), "choosing the device"); }
  Result<void> write_with_feedback(const WirePlace& wire, const WireHeader& header,
                                   const float* values, const Feedback& feedback,
                                   const StochasticKey* key);

  const int device_;
  const std::unique_ptr<kernels::Lanes> lanes_;
  CudaWires wires_{*lanes_, kLeavingParts};
  DeviceMemory corrected_;  // values + feedback.current
};

// The same as encode_with_feedback() does: one kernel for all of it where there are scales.
Result<void> CudaGradients::write_with_feedback(const WirePlace& wire, const WireHeader& header,
                                                const float* values, const Feedback& feedback,
                                                const StochasticKey* key) {
  constexpr const char* kWhat = "encoding with feedback";
  const std::uint64_t n = header.elements;
  const float* const current = floats(feedback.current);
  float* const next = floats(feedback.next);
  if (const auto spec = quant_spec(header.codec)) {
    return checked(
        kernels::cuda::quantize_wire_with_feedback(*spec, values, current, next, n, key,
                                                   wire.tiles(), wire.non_finite(), kDefaultStream),
        kWhat);
  }
  if (corrected_.size() < n * sizeof(float)) SWARMLINE_TRY(corrected_.allocate(n * sizeof(float)));
  float* const corrected = corrected_.as<float>();
  SWARMLINE_TRY(checked(kernels::cuda::add(values, current, corrected, n, kDefaultStream), kWhat));
  SWARMLINE_TRY(write_tiles(wire, header, {corrected_.as<std::byte>(), n}, key));
  SWARMLINE_TRY(read_tiles(wire, header, {feedback.next, n}));
  return checked(kernels::cuda::lost_values(corrected, next, next, n, kDefaultStream), kWhat);
}

Result<std::unique_ptr<LeavingWire>> CudaGradients::begin_encode(const CodecSpec& codec,
                                                                 DeviceAddress values,
                                                                 std::uint64_t n,
                                                                 const Feedback& feedback,
                                                                 const StochasticKey* key) {
  SWARMLINE_CHECK(is_valid(codec) && encodes(codec));
  SWARMLINE_CHECK((feedback.current == nullptr) == (feedback.next == nullptr));
  SWARMLINE_TRY(choose_device());
  if (key && !can_round_stochastically(codec)) key = nullptr;
  const DeviceValues of{values, n};
  return wires_.leave(codec, of, key != nullptr, /*number=*/nullptr,
                      [&](const WirePlace& wire, const WireHeader& header) {
                        return feedback.current == nullptr
                                   ? write_tiles(wire, header, of, key)
                                   : write_with_feedback(wire, header, floats(values), feedback,
                                                         key);
                      });
}

Result<void> CudaGradients::decode(BytesView wire, DeviceAddress out, std::uint64_t n) {
  const auto header = read_wire_header(wire);
  if (!header) return std::unexpected(header.error());
  SWARMLINE_TRY(choose_device());
  return wires_.arrive(wire, *header, {out, n});
}

Result<void> CudaGradients::add(DeviceAddress a, DeviceAddress b, DeviceAddress sum,
                                std::uint64_t n) {
  SWARMLINE_TRY(choose_device());
  SWARMLINE_TRY(
      checked(kernels::cuda::add(floats(a), floats(b), floats(sum), n, kDefaultStream), "adding"));
  return wires_.flag().settle();
}

Result<std::unique_ptr<DeviceGradients>> make_gradients(int device) {
  SWARMLINE_TRY(checked(cudaSetDevice(device), "choosing the device"));
  auto lanes = kernels::cuda::make_lanes(device);
  if (!lanes) return std::unexpected(std::move(lanes).error());
  auto gradients = std::make_unique<CudaGradients>(device, std::move(*lanes));
  SWARMLINE_TRY(gradients->begin());
  return gradients;
}

}  // namespace
}  // namespace swarmline

extern "C" {
extern swarmline::MakeDeviceGradients* const swarmline_cuda_make_gradients;
swarmline::MakeDeviceGradients* const swarmline_cuda_make_gradients = swarmline::make_gradients;
}
