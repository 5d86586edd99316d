// Blockwise quantization: what every codec with codes and scales is made of. Each format is defined
// in one header of kernels/format/, down to the bit; this one says how to call it.
//   What:      per block of `block` consecutive elements (the last may be shorter) one scale, per
//              element one code. Every instruction set and the CUDA twins give the same bits.
//   Shapes:    n elements, any n >= 0, any alignment; quant_blocks(spec, n) scales of
//              scale_bytes(spec.scales) each; code_bytes(spec, n) bytes of codes. Buffers do not
//              overlap, unless a function says otherwise.
//   Thread:    any, stateless; one thread does the work.
//   Errors:    none. NaN and infinity: a block that holds one has the scale NaN (0x7FC00000, or
//              0x7FC0 as bf16) and codes 0, and comes back as NaN throughout; so does any block
//              whose scale is NaN, infinite, negative or too large (format/scale.h). Never silently
//              a number. Every function returns whether such a block was met, dequantize() also
//              whether a value became infinite in the target.
//   Bounds:    n <= 2^35 with stochastic rounding (a 32-bit counter of eight elements each).
#pragma once

#include <cstddef>
#include <cstdint>

namespace swarmline::kernels {

enum class QuantFormat : std::uint8_t {
  kLin8,          // format/lin8.h: linear int8; block 64..4096
  kDyn8,          // format/dyn8.h: signed dynamic map; block 64..4096
  kDyn8Unsigned,  // format/dyn8.h: unsigned dynamic map, for values >= 0; block 64..4096
  kH8,            // format/h8.h: 64-point Hadamard rotation, then linear int8; block 64
  kE4M3,          // format/fp8.h: block 128
  kE5M2,          // format/fp8.h: block 128
  kInt4,          // format/int4.h: linear, two codes a byte; block 32
  kH4,            // format/int4.h: 32-point Hadamard rotation, then kInt4; block 32
};
enum class ScaleKind : std::uint8_t { kF32, kBf16 };        // bf16: rounded up
enum class FloatKind : std::uint8_t { kF32, kF16, kBf16 };  // of the elements

struct QuantSpec {
  QuantFormat format = QuantFormat::kLin8;
  std::uint32_t block = 256;  // elements per scale; a power of two that the format allows
  ScaleKind scales = ScaleKind::kF32;
  bool operator==(const QuantSpec&) const = default;
};

// Key of stochastic rounding (format/philox.h): the same key and element give the same draw,
// wherever and in however many pieces a tensor is quantized. Only for kLin8, kH8, kInt4 and kH4.
struct StochasticKey {
  std::uint64_t seed = 0;
  std::uint32_t stream[3] = {};     // the caller's: step, index, boundary and direction
  std::uint64_t first_element = 0;  // of this call in the whole tensor; a multiple of 8
};

bool is_valid(const QuantSpec& spec);  // the block suits the format
bool can_round_stochastically(QuantFormat format);
std::size_t quant_blocks(const QuantSpec& spec, std::size_t n);
std::size_t scale_bytes(ScaleKind scales);  // of one
std::size_t code_bytes(const QuantSpec& spec, std::size_t n);

// `key` null: to nearest. Returns whether a block was not finite.
bool quantize(const QuantSpec& spec, FloatKind source, const void* values, std::size_t n,
              const StochasticKey* key, void* scales, std::uint8_t* codes);
bool dequantize(const QuantSpec& spec, const void* scales, const std::uint8_t* codes, std::size_t n,
                FloatKind target, void* values);
// y += a * value: the value rounded to fp32, then the product, then the sum.
bool dequantize_axpy(const QuantSpec& spec, float a, const void* scales, const std::uint8_t* codes,
                     std::size_t n, float* y);
// (values of parts[0] + values of parts[1] + ...) * factor, added in that order in fp32, quantized
// again. `parts_count` in 1..kQuantPartsMax. The output may be the buffers of a part.
inline constexpr std::size_t kQuantPartsMax = 64;
struct QuantPart {
  const void* scales = nullptr;
  const std::uint8_t* codes = nullptr;
};
bool mean_requantize(const QuantSpec& spec, const QuantPart* parts, std::size_t parts_count,
                     float factor, std::size_t n, const StochasticKey* key, void* scales,
                     std::uint8_t* codes);
// Error feedback: t = value + residual; codes of t; residual = t - what the codes decode to. A
// block that is not finite leaves residual 0.
bool quantize_with_feedback(const QuantSpec& spec, const float* values, float* residual,
                            std::size_t n, const StochasticKey* key, void* scales,
                            std::uint8_t* codes);

// The signed and the unsigned map of format/dyn8.h as tables of 256 values in [-1, 1].
const float* dyn8_codebook(bool is_signed);

}  // namespace swarmline::kernels
