// 8-bit optimizer state on the CPU: a piece that fits the first-level cache is decoded, stepped by
// the fp32 kernels and coded again, so that memory sees the codes alone.

#include "kernels/cpu/optimizer8.h"

#include <algorithm>

#include "kernels/cpu/block_sums.h"
#include "kernels/format/adam8.h"
#include "kernels/optimizer.h"
#include "kernels/quantize.h"

namespace swarmline::kernels {
namespace {

constexpr QuantSpec kFirstMoment = {
    .format = QuantFormat::kDyn8, .block = kMomentBlock, .scales = ScaleKind::kF32};
constexpr QuantSpec kSecondMoment = {
    .format = QuantFormat::kDyn8Unsigned, .block = kMomentBlock, .scales = ScaleKind::kF32};

// Elements decoded at a time: two moments in 16 KiB. LAMB's sums want whole blocks of theirs.
constexpr std::size_t kPiece = 2048;
static_assert(kPiece % kMomentBlock == 0 && kSumBlock % kMomentBlock == 0);

Moments8 at(const Moments8& state, std::size_t begin) {
  const std::size_t block = begin / kMomentBlock;
  return {.m = state.m + begin,
          .m_scales = state.m_scales + block,
          .v = state.v + begin,
          .v_scales = state.v_scales + block};
}

void decode(const Moments8& state, std::size_t n, float* m, float* v) {
  decode_first_moment(state, n, m);
  dequantize(kSecondMoment, state.v_scales, state.v, n, FloatKind::kF32, v);
}

void encode(const KernelTable& table, const float* m, const float* v, std::size_t n,
            const Moments8& state) {
  encode_first_moment(m, n, state);
  quantize(kSecondMoment, FloatKind::kF32, v, n, nullptr, state.v_scales, state.v);
  for (std::size_t begin = 0; begin < n; begin += kMomentBlock) {
    if (!(state.v_scales[begin / kMomentBlock] > 0)) continue;
    table.floor_codes(v + begin, state.v + begin, std::min(kMomentBlock, n - begin));
  }
}

}  // namespace

void decode_first_moment(const Moments8& state, std::size_t n, float* m) {
  dequantize(kFirstMoment, state.m_scales, state.m, n, FloatKind::kF32, m);
}
void encode_first_moment(const float* m, std::size_t n, const Moments8& state) {
  quantize(kFirstMoment, FloatKind::kF32, m, n, nullptr, state.m_scales, state.m);
}

void adamw8(const KernelTable& table, const AdamwStep<float>& step, const float* gradients,
            const Moments8& state, float* parameters, std::size_t n) {
  alignas(64) float m[kPiece];
  alignas(64) float v[kPiece];
  for (std::size_t begin = 0; begin < n; begin += kPiece) {
    const std::size_t size = std::min(kPiece, n - begin);
    const Moments8 piece = at(state, begin);
    decode(piece, size, m, v);
    table.f32.adamw(step, gradients + begin, m, v, parameters + begin, size);
    encode(table, m, v, size, piece);
  }
}

LambNorms lamb8_norms(const KernelTable& table, const LambStep<float>& step, const float* gradients,
                      const Moments8& state, const float* parameters, std::size_t n) {
  alignas(64) float m[kSumBlock];
  alignas(64) float v[kSumBlock];
  BlockSums parameter_sums;
  BlockSums update_sums;
  for (std::size_t begin = 0; begin < n; begin += kSumBlock) {
    const std::size_t size = std::min(kSumBlock, n - begin);
    decode(at(state, begin), size, m, v);
    // Of one block, the sums are the block's own.
    const LambNorms sums =
        table.f32.lamb_moments(step, gradients + begin, m, v, parameters + begin, size);
    parameter_sums.add(sums.parameters);
    update_sums.add(sums.update);
  }
  return {.parameters = parameter_sums.finish(), .update = update_sums.finish()};
}

void lamb8_apply(const KernelTable& table, const LambStep<float>& step, float rate,
                 const float* gradients, const Moments8& state, float* parameters, std::size_t n) {
  alignas(64) float m[kPiece];
  alignas(64) float v[kPiece];
  for (std::size_t begin = 0; begin < n; begin += kPiece) {
    const std::size_t size = std::min(kPiece, n - begin);
    const Moments8 piece = at(state, begin);
    decode(piece, size, m, v);
    table.f32.move_moments(step.moments, gradients + begin, m, v, size);
    table.f32.lamb_apply(step, rate, m, v, parameters + begin, size);
    encode(table, m, v, size, piece);
  }
}

void adamw8(const AdamwStep<float>& step, const float* gradients, const Moments8& state,
            float* parameters, std::size_t n) {
  adamw8(*available_tables().front(), step, gradients, state, parameters, n);
}
LambNorms lamb8_norms(const LambStep<float>& step, const float* gradients, const Moments8& state,
                      const float* parameters, std::size_t n) {
  return lamb8_norms(*available_tables().front(), step, gradients, state, parameters, n);
}
void lamb8_apply(const LambStep<float>& step, float rate, const float* gradients,
                 const Moments8& state, float* parameters, std::size_t n) {
  lamb8_apply(*available_tables().front(), step, rate, gradients, state, parameters, n);
}

}  // namespace swarmline::kernels
