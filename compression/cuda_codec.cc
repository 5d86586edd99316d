// DeviceCodec on CUDA, with the kernels of kernels/cuda/quantize.cuh and kernels.cuh.

#include <bitset>
#include <cuda_runtime.h>
#include <span>

#include "base/check.h"
#include "compression/device_codec_entry.h"
#include "compression/wire.h"
#include "kernels/cuda/device_memory.h"
#include "kernels/cuda/error_sums.cuh"
#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/quantize.cuh"

namespace swarmline {
namespace {

using kernels::StochasticKey;
using kernels::cuda::checked;
using kernels::cuda::DeviceMemory;
using kernels::cuda::ErrorSums;
using kernels::cuda::kDefaultStream;

bool runs_on_device(const CodecSpec& codec) {
  return quant_spec(codec) || codec.kind == CodecKind::kFp16 || codec.kind == CodecKind::kBf16;
}

cudaError_t narrow(CodecKind kind, const float* values, std::uint16_t* codes, std::size_t n,
                   std::uint32_t* non_finite) {
  const auto convert =
      kind == CodecKind::kFp16 ? kernels::cuda::fp32_to_fp16 : kernels::cuda::fp32_to_bf16;
  return convert(values, codes, n, non_finite, kDefaultStream);
}
cudaError_t widen(CodecKind kind, const std::uint16_t* codes, float* values, std::size_t n,
                  std::uint32_t* non_finite) {
  const auto convert =
      kind == CodecKind::kFp16 ? kernels::cuda::fp16_to_fp32 : kernels::cuda::bf16_to_fp32;
  return convert(codes, values, n, non_finite, kDefaultStream);
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

class CudaCodec final : public DeviceCodec {
 public:
  explicit CudaCodec(int device) : device_(device) {}
  ~CudaCodec() override { cudaSetDevice(device_); }

  Result<Buffer> encode(const CodecSpec& codec, const float* device_values, std::uint64_t n,
                        const StochasticKey* key) override;
  Result<void> decode(BytesView wire, float* device_out, std::uint64_t n) override;
  Result<CodecMeasurement> measure(const CodecSpec& codec, const float* device_values,
                                   std::uint64_t n, const StochasticKey* key) override;

 private:
  static constexpr std::size_t kSumsRoom = 256;  // ErrorSums, then CUB's memory at its boundary

  // A wire buffer as it lies in `wire_`: where its header belongs, a flag that kernels set, and the
  // tiles. So one copy brings both to the host.
  std::uint32_t* non_finite() const { return wire_.as<std::uint32_t>(); }
  std::byte* tiles() const { return wire_.as<std::byte>() + kWireHeaderBytes; }
  std::uint16_t* halves(const Tile& tile) const {
    return reinterpret_cast<std::uint16_t*>(wire_.as<std::byte>() + tile.at);
  }
  Result<void> choose_device() { return checked(cudaSetDevice(device_), "choosing the device"); }
  static Result<void> make_room(DeviceMemory& memory, std::size_t bytes) {
    return bytes <= memory.size() ? Result<void>() : memory.allocate(bytes);
  }
  Result<void> clear_flag() {
    return checked(cudaMemsetAsync(wire_.as<std::byte>(), 0, kWireHeaderBytes, kDefaultStream),
                   "clearing a flag");
  }
  Result<void> write_tiles(const WireHeader& header, const float* values, const StochasticKey* key);
  Result<void> read_tiles(const WireHeader& header, float* values);
  Result<void> there_and_back(const CodecSpec& codec, const float* values, std::uint64_t n,
                              const StochasticKey* key);

  const int device_;
  DeviceMemory wire_;
  // measure()'s.
  DeviceMemory decoded_;
  DeviceMemory sums_;
  std::bitset<2 * kCodecKinds> loaded_;  // by kind, to nearest and stochastic
};

Result<void> CudaCodec::write_tiles(const WireHeader& header, const float* values,
                                    const StochasticKey* key) {
  constexpr const char* kWhat = "encoding a tensor";
  if (const auto spec = quant_spec(header.codec)) {
    return checked(
        kernels::cuda::quantize_wire(*spec, kernels::FloatKind::kF32, values, header.elements, key,
                                     tiles(), non_finite(), kDefaultStream),
        kWhat);
  }
  for (Tile tile; next_tile(header, tile);)
    SWARMLINE_TRY(checked(
        narrow(header.codec.kind, values + tile.first, halves(tile), tile.elements, non_finite()),
        kWhat));
  return {};
}

Result<void> CudaCodec::read_tiles(const WireHeader& header, float* values) {
  constexpr const char* kWhat = "decoding a tensor";
  if (const auto spec = quant_spec(header.codec)) {
    return checked(
        kernels::cuda::dequantize_wire(*spec, tiles(), header.elements, kernels::FloatKind::kF32,
                                       values, non_finite(), kDefaultStream),
        kWhat);
  }
  for (Tile tile; next_tile(header, tile);)
    SWARMLINE_TRY(checked(
        widen(header.codec.kind, halves(tile), values + tile.first, tile.elements, non_finite()),
        kWhat));
  return {};
}

Result<Buffer> CudaCodec::encode(const CodecSpec& codec, const float* device_values,
                                 std::uint64_t n, const StochasticKey* key) {
  SWARMLINE_CHECK(is_valid(codec));
  SWARMLINE_TRY(choose_device());
  if (!runs_on_device(codec)) {
    Buffer values(n * sizeof(float));
    SWARMLINE_TRY(
        checked(cudaMemcpy(values.data(), device_values, values.size(), cudaMemcpyDeviceToHost),
                "copying a tensor to the host"));
    return swarmline::encode(codec, values.bytes(), DType::kF32, key);
  }
  if (key && !can_round_stochastically(codec)) key = nullptr;
  WireHeader header{.codec = codec,
                    .stochastic = key != nullptr,
                    .elements = n,
                    .payload_bytes = encoded_bytes(codec, n, DType::kF32) - kWireHeaderBytes};
  Buffer wire(kWireHeaderBytes + header.payload_bytes);
  SWARMLINE_TRY(make_room(wire_, wire.size()));
  SWARMLINE_TRY(clear_flag());
  SWARMLINE_TRY(write_tiles(header, device_values, key));
  SWARMLINE_TRY(wire_.read(0, wire.bytes()));
  header.non_finite = wire.as<std::uint32_t>()[0] != 0;
  seal_wire(header, wire.bytes());
  return wire;
}

Result<void> CudaCodec::decode(BytesView wire, float* device_out, std::uint64_t n) {
  const auto header = read_wire_header(wire);
  if (!header) return std::unexpected(header.error());
  const std::size_t out_bytes = n * sizeof(float);
  SWARMLINE_TRY(choose_device());
  if (!runs_on_device(header->codec)) {
    Buffer values(out_bytes);
    SWARMLINE_TRY(swarmline::decode(wire, DType::kF32, values.bytes()));
    return checked(cudaMemcpy(device_out, values.data(), out_bytes, cudaMemcpyHostToDevice),
                   "copying a tensor to the device");
  }
  SWARMLINE_TRY(check_target(*header, DType::kF32, out_bytes));
  for (Tile tile; next_tile(*header, tile);) SWARMLINE_TRY(check_hash(header->codec, tile, wire));
  SWARMLINE_TRY(make_room(wire_, wire.size()));
  SWARMLINE_TRY(wire_.write(0, wire));
  SWARMLINE_TRY(clear_flag());
  SWARMLINE_TRY(read_tiles(*header, device_out));
  std::uint32_t flag = 0;
  SWARMLINE_TRY(wire_.read(0, std::as_writable_bytes(std::span(&flag, 1))));
  return check_announced(*header, DType::kF32, flag != 0);
}

Result<void> CudaCodec::there_and_back(const CodecSpec& codec, const float* values, std::uint64_t n,
                                       const StochasticKey* key) {
  const auto wire = encode(codec, values, n, key);
  if (!wire) return std::unexpected(wire.error());
  return decode(wire->bytes(), decoded_.as<float>(), n);
}

Result<CodecMeasurement> CudaCodec::measure(const CodecSpec& codec, const float* device_values,
                                            std::uint64_t n, const StochasticKey* key) {
  SWARMLINE_TRY(choose_device());
  std::size_t workspace_bytes = 0;
  SWARMLINE_TRY(checked(kernels::cuda::error_sums_workspace(n, workspace_bytes),
                        "asking for the size of a workspace"));
  // Untimed: allocations, and a kernel's first launch, which loads it.
  SWARMLINE_TRY(make_room(decoded_, n * sizeof(float)));
  SWARMLINE_TRY(make_room(wire_, encoded_bytes(codec, n, DType::kF32)));
  SWARMLINE_TRY(make_room(sums_, kSumsRoom + workspace_bytes));

  const std::size_t kernel = 2 * static_cast<std::size_t>(codec.kind) + (key ? 1 : 0);
  if (!loaded_[kernel]) SWARMLINE_TRY(there_and_back(codec, device_values, n, key));
  loaded_.set(kernel);

  DeviceStopwatch stopwatch;
  SWARMLINE_TRY(stopwatch.start());
  SWARMLINE_TRY(there_and_back(codec, device_values, n, key));
  const auto time = stopwatch.stop();
  if (!time) return std::unexpected(time.error());

  SWARMLINE_TRY(
      checked(kernels::cuda::error_sums(device_values, decoded_.as<float>(), n,
                                        sums_.as<std::byte>() + kSumsRoom, workspace_bytes,
                                        sums_.as<ErrorSums>(), kDefaultStream),
              "measuring a codec's error"));
  ErrorSums sums{};
  SWARMLINE_TRY(sums_.read(0, std::as_writable_bytes(std::span(&sums, 1))));
  return CodecMeasurement{
      .error = {.squared_error = sums.squared_error, .squared_norm = sums.squared_norm},
      .time = *time};
}

Result<std::unique_ptr<DeviceCodec>> make_codec(int device) {
  return std::make_unique<CudaCodec>(device);
}

}  // namespace
}  // namespace swarmline

extern "C" {
extern swarmline::MakeDeviceCodec* const swarmline_cuda_make_codec;
swarmline::MakeDeviceCodec* const swarmline_cuda_make_codec = swarmline::make_codec;
}
