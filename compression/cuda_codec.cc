// DeviceCodec on CUDA.

#include <bitset>
#include <cuda_runtime.h>
#include <span>

#include "base/check.h"
#include "compression/cuda_wire.h"
#include "compression/device_codec_entry.h"
#include "compression/wire.h"
#include "kernels/cuda/cuda_lanes.h"
#include "kernels/cuda/device_memory.h"
#include "kernels/cuda/error_sums.cuh"
#include "kernels/cuda/kernels.cuh"
#include "kernels/tensor_lanes.h"

namespace swarmline {
namespace {

using kernels::Lane;
using kernels::LeavingTensors;
using kernels::StochasticKey;
using kernels::cuda::checked;
using kernels::cuda::DeviceMemory;
using kernels::cuda::ErrorSums;
using kernels::cuda::kDefaultStream;

bool runs_on_device(const CodecSpec& codec) {
  return codec.kind != CodecKind::kTopK;
}

std::size_t bytes_of(const DeviceValues& values) {
  return values.elements * size_bytes(values.dtype);
}

// Times what lies between two points of the default stream.
class DeviceStopwatch {
 public:
  DeviceStopwatch() = default;
  DeviceStopwatch(const DeviceStopwatch&) = delete;
  DeviceStopwatch& operator=(const DeviceStopwatch&) = delete;
  ~DeviceStopwatch() {
    for (const cudaEvent_t event : {begin_, end_})
      if (event) cudaEventDestroy(event);
  }
  Result<void> start() {
    for (cudaEvent_t* event : {&begin_, &end_})
      SWARMLINE_TRY(checked(cudaEventCreate(event), kWhat));
    return checked(cudaEventRecord(begin_, kDefaultStream), kWhat);
  }
  Result<Duration> stop() {
    float milliseconds = 0;
    SWARMLINE_TRY(checked(cudaEventRecord(end_, kDefaultStream), kWhat));
    SWARMLINE_TRY(checked(cudaEventSynchronize(end_), kWhat));
    SWARMLINE_TRY(checked(cudaEventElapsedTime(&milliseconds, begin_, end_), kWhat));
    return from_seconds(1e-3 * double{milliseconds});
  }

 private:
  static constexpr const char* kWhat = "timing a codec";
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

// Encoded on the host; the number follows.
class HostWire final : public LeavingWire {
 public:
  HostWire(Buffer wire, std::unique_ptr<LeavingWire> number)
      : wire_(std::move(wire)), number_(std::move(number)) {}
  Result<void> made() override { return number_->made(); }
  Result<Buffer> wait() override {
    auto here = number_->wait();
    if (!here) return here;
    return std::move(wire_);
  }
  double number() const override { return number_->number(); }

 private:
  Buffer wire_;
  std::unique_ptr<LeavingWire> number_;
};

class CudaCodec final : public DeviceCodec {
 public:
  CudaCodec(int device, std::unique_ptr<kernels::Lanes> lanes)
      : device_(device), lanes_(std::move(lanes)) {}
  ~CudaCodec() override { cudaSetDevice(device_); }
  Result<void> begin() { return wires_.begin(); }

  Result<Buffer> encode(const CodecSpec& codec, const DeviceValues& values,
                        const StochasticKey* key) override;
  Result<std::unique_ptr<LeavingWire>> begin_encode(const CodecSpec& codec,
                                                    const DeviceValues& values,
                                                    const StochasticKey* key,
                                                    const double* number) override;
  Result<std::unique_ptr<LeavingWire>> begin_number(const double* number) override;
  Result<void> decode(BytesView wire, const DeviceValues& out) override;
  Result<void> bring(BytesView bytes, DeviceAddress device_out) override;
  Result<CodecMeasurement> measure(const CodecSpec& codec, const DeviceValues& values,
                                   const StochasticKey* key) override;

 private:
  static constexpr std::size_t kSumsRoom = 256;  // ErrorSums, then CUB's memory at its boundary

  Result<void> choose_device() { return checked(cudaSetDevice(device_), "choosing the device"); }
  static Result<void> make_room(DeviceMemory& memory, std::size_t bytes) {
    return bytes <= memory.size() ? Result<void>() : memory.allocate(bytes);
  }
  Result<void> there_and_back(const CodecSpec& codec, const DeviceValues& values,
                              const StochasticKey* key);
  Result<const float*> as_fp32(const DeviceValues& values, DeviceMemory& room);

  const int device_;
  const std::unique_ptr<kernels::Lanes> lanes_;
  CudaWires wires_{*lanes_, LeavingTensors::kLeaving};
  // measure()'s.
  DeviceMemory decoded_;
  DeviceMemory wide_, wide_decoded_;  // of bf16
  DeviceMemory sums_;
  std::bitset<2 * kCodecKinds> loaded_;  // by kind, to nearest and stochastic
};

Result<std::unique_ptr<LeavingWire>> CudaCodec::begin_number(const double* number) {
  SWARMLINE_TRY(choose_device());
  auto leaving = wires_.leaving().claim(0);
  if (!leaving) return std::unexpected(std::move(leaving).error());
  SWARMLINE_TRY((*leaving)->leave(0, number));
  return std::make_unique<CudaWire>(std::move(*leaving), WireHeader{});
}

Result<std::unique_ptr<LeavingWire>> CudaCodec::begin_encode(const CodecSpec& codec,
                                                             const DeviceValues& values,
                                                             const StochasticKey* key,
                                                             const double* number) {
  SWARMLINE_CHECK(is_valid(codec));
  SWARMLINE_TRY(choose_device());
  if (!runs_on_device(codec)) {
    Buffer here(bytes_of(values));
    SWARMLINE_TRY(checked(cudaMemcpy(here.data(), values.at, here.size(), cudaMemcpyDeviceToHost),
                          "copying a tensor to the host"));
    auto rest = begin_number(number);
    if (!rest) return rest;
    return std::make_unique<HostWire>(swarmline::encode(codec, here.bytes(), values.dtype, key),
                                      std::move(*rest));
  }
  if (key && !can_round_stochastically(codec)) key = nullptr;
  return wires_.leave(codec, values, key != nullptr, number,
                      [&](const WirePlace& wire, const WireHeader& header) {
                        return write_tiles(wire, header, values, key);
                      });
}

Result<Buffer> CudaCodec::encode(const CodecSpec& codec, const DeviceValues& values,
                                 const StochasticKey* key) {
  auto wire = begin_encode(codec, values, key, nullptr);
  if (!wire) return std::unexpected(std::move(wire).error());
  return (*wire)->wait();
}

Result<void> CudaCodec::decode(BytesView wire, const DeviceValues& out) {
  const auto header = read_wire_header(wire);
  if (!header) return std::unexpected(header.error());
  SWARMLINE_TRY(choose_device());
  if (!runs_on_device(header->codec)) {
    Buffer values(bytes_of(out));
    SWARMLINE_TRY(swarmline::decode(wire, out.dtype, values.bytes()));
    return checked(cudaMemcpy(out.at, values.data(), values.size(), cudaMemcpyHostToDevice),
                   "copying a tensor to the device");
  }
  return wires_.arrive(wire, *header, out);
}

Result<void> CudaCodec::bring(BytesView bytes, DeviceAddress device_out) {
  if (bytes.empty()) return {};
  SWARMLINE_TRY(choose_device());
  const auto arrived = wires_.arriving().bring(bytes);
  if (!arrived) return std::unexpected(arrived.error());
  SWARMLINE_TRY(lanes_->copy(Lane::kCompute, device_out, *arrived, bytes.size()));
  return wires_.arriving().used();
}

Result<void> CudaCodec::there_and_back(const CodecSpec& codec, const DeviceValues& values,
                                       const StochasticKey* key) {
  const auto wire = encode(codec, values, key);
  if (!wire) return std::unexpected(wire.error());
  return decode(
      wire->bytes(),
      {.at = decoded_.as<std::byte>(), .elements = values.elements, .dtype = values.dtype});
}

// Where they are, or widened into `room`.
Result<const float*> CudaCodec::as_fp32(const DeviceValues& values, DeviceMemory& room) {
  if (values.dtype == DType::kF32) return reinterpret_cast<const float*>(values.at);
  SWARMLINE_TRY(make_room(room, values.elements * sizeof(float)));
  SWARMLINE_TRY(
      checked(kernels::cuda::bf16_to_fp32(reinterpret_cast<const std::uint16_t*>(values.at),
                                          room.as<float>(), values.elements,
                                          /*non_finite=*/nullptr, kDefaultStream),
              "widening a sample"));
  return room.as<float>();
}

Result<CodecMeasurement> CudaCodec::measure(const CodecSpec& codec, const DeviceValues& values,
                                            const StochasticKey* key) {
  const std::uint64_t n = values.elements;
  SWARMLINE_TRY(choose_device());
  std::size_t workspace_bytes = 0;
  SWARMLINE_TRY(checked(kernels::cuda::error_sums_workspace(n, workspace_bytes),
                        "asking for the size of a workspace"));
  // Untimed: allocations, and a kernel's first launch, which loads it.
  SWARMLINE_TRY(make_room(decoded_, bytes_of(values)));
  SWARMLINE_TRY(make_room(sums_, kSumsRoom + workspace_bytes));

  const std::size_t kernel = 2 * static_cast<std::size_t>(codec.kind) + (key ? 1 : 0);
  if (!loaded_[kernel]) SWARMLINE_TRY(there_and_back(codec, values, key));
  loaded_.set(kernel);

  DeviceStopwatch stopwatch;
  SWARMLINE_TRY(stopwatch.start());
  SWARMLINE_TRY(there_and_back(codec, values, key));
  const auto time = stopwatch.stop();
  if (!time) return std::unexpected(time.error());

  const auto wanted = as_fp32(values, wide_);
  if (!wanted) return std::unexpected(wanted.error());
  const DeviceValues came{.at = decoded_.as<std::byte>(), .elements = n, .dtype = values.dtype};
  const auto got = as_fp32(came, wide_decoded_);
  if (!got) return std::unexpected(got.error());
  SWARMLINE_TRY(
      checked(kernels::cuda::error_sums(*wanted, *got, n, sums_.as<std::byte>() + kSumsRoom,
                                        workspace_bytes, sums_.as<ErrorSums>(), kDefaultStream),
              "measuring a codec's error"));
  ErrorSums sums{};
  SWARMLINE_TRY(sums_.read(0, std::as_writable_bytes(std::span(&sums, 1))));
  return CodecMeasurement{
      .error = {.squared_error = sums.squared_error, .squared_norm = sums.squared_norm},
      .time = *time};
}

Result<std::unique_ptr<DeviceCodec>> make_codec(int device) {
  SWARMLINE_TRY(checked(cudaSetDevice(device), "choosing the device"));
  auto lanes = kernels::cuda::make_lanes(device);
  if (!lanes) return std::unexpected(std::move(lanes).error());
  auto codec = std::make_unique<CudaCodec>(device, std::move(*lanes));
  SWARMLINE_TRY(codec->begin());
  return codec;
}

}  // namespace
}  // namespace swarmline

extern "C" {
extern swarmline::MakeDeviceCodec* const swarmline_cuda_make_codec;
swarmline::MakeDeviceCodec* const swarmline_cuda_make_codec = swarmline::make_codec;
}
