// From the calls of quantize.cuh to the kernels of one format.

#include "kernels/cuda/quantize.cuh"
#include "kernels/cuda/quantize_launch.cuh"

namespace swarmline::kernels::cuda {
namespace {

const FormatLaunches& launches_of(QuantFormat format) {
  static const FormatLaunches all[] = {lin8_launches(), dyn8_launches(), dyn8_unsigned_launches(),
                                       h8_launches(),   e4m3_launches(), e5m2_launches(),
                                       int4_launches(), h4_launches()};
  return all[static_cast<int>(format)];
}
static_assert(static_cast<int>(QuantFormat::kLin8) == 0 &&
              static_cast<int>(QuantFormat::kDyn8Unsigned) == 2 &&
              static_cast<int>(QuantFormat::kH8) == 3 &&
              static_cast<int>(QuantFormat::kE5M2) == 5 && static_cast<int>(QuantFormat::kH4) == 7);

template <typename Args>
cudaError_t run(cudaError_t (*launch)(const Args&, cudaStream_t), const Args& args,
                cudaStream_t stream) {
  if (launch == nullptr || !is_valid(args.spec)) return cudaErrorInvalidValue;
  return launch(args, stream);
}

CodesAt in_arrays(const void* scales, const std::uint8_t* codes) {
  return {.scales = static_cast<std::uint8_t*>(const_cast<void*>(scales)),
          .codes = const_cast<std::uint8_t*>(codes)};
}
CodesAt in_tiles(const QuantSpec& spec, const void* tiles) {
  return {.scales = static_cast<std::uint8_t*>(const_cast<void*>(tiles)),
          .tile_stride = tile_bytes(spec, kTileElements)};
}

cudaError_t quantize_to(const CodesAt& out, const QuantSpec& spec, FloatKind source,
                        const void* values, std::size_t n, const StochasticKey* key,
                        std::uint32_t* non_finite, cudaStream_t stream) {
  QuantizeArgs args{.values = values, .n = n, .spec = spec, .out = out, .non_finite = non_finite};
  if (key != nullptr) args.key = *key;
  return run(launches_of(spec.format).quantize[key != nullptr][static_cast<int>(source)], args,
             stream);
}

}  // namespace

cudaError_t quantize(const QuantSpec& spec, FloatKind source, const void* values, std::size_t n,
                     const StochasticKey* key, void* scales, std::uint8_t* codes,
                     std::uint32_t* non_finite, cudaStream_t stream) {
  return quantize_to(in_arrays(scales, codes), spec, source, values, n, key, non_finite, stream);
}
cudaError_t quantize_wire(const QuantSpec& spec, FloatKind source, const void* values,
                          std::size_t n, const StochasticKey* key, void* tiles,
                          std::uint32_t* non_finite, cudaStream_t stream) {
  return quantize_to(in_tiles(spec, tiles), spec, source, values, n, key, non_finite, stream);
}

cudaError_t dequantize(const QuantSpec& spec, const void* scales, const std::uint8_t* codes,
                       std::size_t n, FloatKind target, void* values, std::uint32_t* non_finite,
                       cudaStream_t stream) {
  const DequantizeArgs args{.values = values,
                            .n = n,
                            .spec = spec,
                            .in = in_arrays(scales, codes),
                            .non_finite = non_finite};
  return run(launches_of(spec.format).dequantize[static_cast<int>(target)], args, stream);
}
cudaError_t dequantize_wire(const QuantSpec& spec, const void* tiles, std::size_t n,
                            FloatKind target, void* values, std::uint32_t* non_finite,
                            cudaStream_t stream) {
  const DequantizeArgs args{.values = values,
                            .n = n,
                            .spec = spec,
                            .in = in_tiles(spec, tiles),
                            .non_finite = non_finite};
  return run(launches_of(spec.format).dequantize[static_cast<int>(target)], args, stream);
}
cudaError_t quantize_wire_with_feedback(const QuantSpec& spec, const float* values,
                                        const float* current, float* next, std::size_t n,
                                        const StochasticKey* key, void* tiles,
                                        std::uint32_t* non_finite, cudaStream_t stream) {
  QuantizeArgs args{.values = values,
                    .n = n,
                    .spec = spec,
                    .out = in_tiles(spec, tiles),
                    .current = current,
                    .next = next,
                    .non_finite = non_finite};
  if (key != nullptr) args.key = *key;
  return run(launches_of(spec.format).feedback[key != nullptr], args, stream);
}

cudaError_t normalize_quantize(const QuantSpec& spec, const Norm& norm, FloatKind source,
                               const void* values, std::size_t rows, std::size_t width,
                               void* scales, std::uint8_t* codes, std::uint32_t* non_finite,
                               cudaStream_t stream) {
  const bool is_layer = norm.kind == NormKind::kLayer;
  if (!is_valid(spec) || width == 0 || width % spec.block != 0 || norm.weight == nullptr ||
      is_layer != (norm.bias != nullptr)) {
    return cudaErrorInvalidValue;
  }
  const NormArgs args{.values = values,
                      .rows = rows,
                      .width = width,
                      .spec = spec,
                      .out = in_arrays(scales, codes),
                      .is_layer = is_layer,
                      .eps = norm.eps,
                      .weight = norm.weight,
                      .bias = norm.bias,
                      .non_finite = non_finite};
  return run(launches_of(spec.format).normalize[static_cast<int>(source)], args, stream);
}

std::size_t wire_tiles_bytes(const QuantSpec& spec, std::size_t n) {
  const std::size_t rest = n % kTileElements;
  return n / kTileElements * tile_bytes(spec, kTileElements) +
         (rest != 0 ? tile_bytes(spec, rest) : 0);
}

}  // namespace swarmline::kernels::cuda
