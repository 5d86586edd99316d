#include "compression/cuda_wire.h"

#include "base/check.h"
#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/quantize.cuh"
#include "kernels/cuda/topk.cuh"

namespace swarmline {
namespace {

using kernels::Lane;
using kernels::LaneMemoryKind;
using kernels::StochasticKey;
using kernels::cuda::checked;
using kernels::cuda::kDefaultStream;

kernels::FloatKind code_kind(CodecKind kind) {
  SWARMLINE_CHECK(kind == CodecKind::kFp16 || kind == CodecKind::kBf16);
  return kind == CodecKind::kFp16 ? kernels::FloatKind::kF16 : kernels::FloatKind::kBf16;
}

kernels::FloatKind float_kind(DType dtype) {
  SWARMLINE_CHECK(dtype == DType::kF32 || dtype == DType::kBF16);
  return dtype == DType::kBF16 ? kernels::FloatKind::kBf16 : kernels::FloatKind::kF32;
}

float* fp32_of(const DeviceValues& values) {
  SWARMLINE_CHECK(values.dtype == DType::kF32);
  return reinterpret_cast<float*>(values.at);
}

// Codec `none`: values as they lie in the tiles, whose ends stay behind.
Result<void> copy_tiles(const WirePlace& wire, const WireHeader& header, const DeviceValues& values,
                        bool into_tiles) {
  constexpr const char* kWhat = "copying values into or out of their tiles";
  const std::size_t width = size_bytes(values.dtype);
  const std::size_t full_values = kWireTileElements * width;
  const std::size_t full_tile =
      tile_shape(header.codec, kWireTileElements, header.source).total_bytes();
  const std::uint64_t full = header.elements / kWireTileElements;
  const std::size_t rest = header.elements % kWireTileElements * width;
  std::byte* const tiles = wire.tiles();
  const auto copy = [&](std::byte* tile, std::byte* at, std::size_t bytes, std::uint64_t rows) {
    return into_tiles ? cudaMemcpy2DAsync(tile, full_tile, at, full_values, bytes, rows,
                                          cudaMemcpyDeviceToDevice, kDefaultStream)
                      : cudaMemcpy2DAsync(at, full_values, tile, full_tile, bytes, rows,
                                          cudaMemcpyDeviceToDevice, kDefaultStream);
  };
  if (full > 0) SWARMLINE_TRY(checked(copy(tiles, values.at, full_values, full), kWhat));
  if (rest > 0)
    SWARMLINE_TRY(
        checked(copy(tiles + full * full_tile, values.at + full * full_values, rest, 1), kWhat));
  return {};
}

}  // namespace

Result<void> write_tiles(const WirePlace& wire, const WireHeader& header,
                         const DeviceValues& values, const StochasticKey* key) {
  constexpr const char* kWhat = "encoding a tensor";
  if (header.codec.kind == CodecKind::kNone) {
    // Nobody looks whether they are finite: the flag is set in any case.
    SWARMLINE_TRY(checked(cudaMemsetAsync(wire.at, 1, 1, kDefaultStream), kWhat));
    return copy_tiles(wire, header, values, /*into_tiles=*/true);
  }
  if (const auto spec = quant_spec(header.codec)) {
    return checked(
        kernels::cuda::quantize_wire(*spec, float_kind(values.dtype), values.at, header.elements,
                                     key, wire.tiles(), wire.non_finite(), kDefaultStream),
        kWhat);
  }
  if (header.codec.kind == CodecKind::kTopK) {
    return checked(
        kernels::cuda::select_largest_wire(fp32_of(values), header.elements, header.codec.kept,
                                           wire.tiles(), wire.non_finite(), kDefaultStream),
        kWhat);
  }
  return checked(
      kernels::cuda::narrow_wire(code_kind(header.codec.kind), float_kind(values.dtype), values.at,
                                 header.elements, wire.tiles(), wire.non_finite(), kDefaultStream),
      kWhat);
}

Result<void> read_tiles(const WirePlace& wire, const WireHeader& header, const DeviceValues& out) {
  constexpr const char* kWhat = "decoding a tensor";
  if (header.codec.kind == CodecKind::kNone)
    return copy_tiles(wire, header, out, /*into_tiles=*/false);
  if (const auto spec = quant_spec(header.codec)) {
    return checked(
        kernels::cuda::dequantize_wire(*spec, wire.tiles(), header.elements, float_kind(out.dtype),
                                       out.at, wire.non_finite(), kDefaultStream),
        kWhat);
  }
  if (header.codec.kind == CodecKind::kTopK) {
    return checked(kernels::cuda::scatter_wire(wire.tiles(), header.elements, header.codec.kept,
                                               fp32_of(out), wire.non_finite(), kDefaultStream),
                   kWhat);
  }
  return checked(
      kernels::cuda::widen_wire(code_kind(header.codec.kind), wire.tiles(), header.elements,
                                float_kind(out.dtype), out.at, wire.non_finite(), kDefaultStream),
      kWhat);
}

Result<void> WireFlag::begin() {
  auto flag = lanes_.allocate(LaneMemoryKind::kHost, sizeof(std::uint32_t));
  if (!flag) return std::unexpected(std::move(flag).error());
  flag_ = std::move(*flag);
  auto settled = lanes_.make_event();
  if (!settled) return std::unexpected(std::move(settled).error());
  settled_ = std::move(*settled);
  return {};
}

Result<bool> WireFlag::read(const WirePlace& wire) {
  SWARMLINE_TRY(lanes_.copy(Lane::kCompute, flag_->data(), wire.at, sizeof(std::uint32_t)));
  SWARMLINE_TRY(settle());
  return *reinterpret_cast<const std::uint32_t*>(flag_->data()) != 0;
}

Result<void> WireFlag::settle() {
  SWARMLINE_TRY(lanes_.record(Lane::kCompute, *settled_));
  return lanes_.synchronize(*settled_);
}

Result<std::unique_ptr<LeavingWire>> CudaWires::leave(const CodecSpec& codec,
                                                      const DeviceValues& values, bool stochastic,
                                                      const double* number, const Write& write) {
  const std::size_t bytes = encoded_bytes(codec, values.elements, values.dtype);
  const WireHeader header{.codec = codec,
                          .source = values.dtype,
                          .stochastic = stochastic,
                          .elements = values.elements,
                          .payload_bytes = bytes - kWireHeaderBytes};
  auto leaving = leaving_.claim(bytes);
  if (!leaving) return std::unexpected(std::move(leaving).error());
  const WirePlace wire{(*leaving)->device()};
  SWARMLINE_TRY(wire.clear_flag());
  SWARMLINE_TRY(write(wire, header));
  SWARMLINE_TRY((*leaving)->leave(bytes, number));
  return std::make_unique<CudaWire>(std::move(*leaving), header);
}

Result<void> CudaWires::arrive(BytesView wire, const WireHeader& header, const DeviceValues& out) {
  SWARMLINE_TRY(check_target(header, out.dtype, out.elements * size_bytes(out.dtype)));
  for (Tile tile; next_tile(header, tile);) {
    SWARMLINE_TRY(check_hash(header.codec, tile, wire));
    SWARMLINE_TRY(check_codes(header, tile, wire));
  }
  const auto arrived = arriving_.bring(wire);
  if (!arrived) return std::unexpected(arrived.error());
  const WirePlace place{*arrived};
  SWARMLINE_TRY(place.clear_flag());
  SWARMLINE_TRY(read_tiles(place, header, out));
  const auto non_finite = flag_.read(place);
  SWARMLINE_TRY(arriving_.used());
  if (!non_finite) return std::unexpected(non_finite.error());
  return check_announced(header, out.dtype, *non_finite);
}

}  // namespace swarmline
