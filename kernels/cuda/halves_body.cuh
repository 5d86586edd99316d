// Bodies of the kernels of 16-bit codecs in a wire buffer's tiles (tiles.h): what a team does in
// one turn, a chunk. Written over Team, so that tests run them on the host. Threads are beside each
// other: each moves one value at a time, and a warp's are one access.
#pragma once

#include <cstddef>

#include "kernels/cuda/quantize_body.cuh"
#include "kernels/element.h"

namespace swarmline::kernels::cuda {

static_assert(kTileElements % kChunk == 0);

struct HalvesArgs {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;  // one is values, the other one tiles
  std::uint64_t n = 0;
  std::uint32_t* non_finite = nullptr;
};

// Tiles have no scales.
inline constexpr std::uint64_t kHalvesTileBytes =
    (kTileElements * sizeof(std::uint16_t) + kTileHashBytes + kTileAlignment - 1) / kTileAlignment *
    kTileAlignment;

struct HalfCode {
  static SWARMLINE_DEVICE std::uint16_t of(float value) { return half_of(value); }
  static SWARMLINE_DEVICE float value(std::uint16_t code) { return float_of_half(code); }
  static SWARMLINE_DEVICE bool bad(std::uint16_t code) { return (code & 0x7C00U) == 0x7C00U; }
};
struct BfloatCode {
  static SWARMLINE_DEVICE std::uint16_t of(float value) { return bfloat_of(value); }
  static SWARMLINE_DEVICE float value(std::uint16_t code) { return float_of_bfloat(code); }
  static SWARMLINE_DEVICE bool bad(std::uint16_t code) { return (code & 0x7F80U) == 0x7F80U; }
};
struct FloatValue {
  using Bits = float;
  static SWARMLINE_DEVICE float widened(float value) { return value; }
  static SWARMLINE_DEVICE float narrowed(float value) { return value; }
};
struct BfloatValue {
  using Bits = std::uint16_t;
  static SWARMLINE_DEVICE float widened(std::uint16_t value) { return float_of_bfloat(value); }
  static SWARMLINE_DEVICE std::uint16_t narrowed(float value) { return bfloat_of(value); }
};

// `kNarrow`: values to codes in tiles; else back.
template <typename Code, typename Value, bool kNarrow>
struct HalvesBody {
  using Args = HalvesArgs;
  struct Shared {};
  static constexpr bool kManyTeams = false;
  struct State {
    bool bad = false;
  };
  static SWARMLINE_DEVICE void run(const Team& team, Shared&, const Args& args,
                                   std::uint64_t turn) {
    using Bits = typename Value::Bits;
    const std::uint64_t first = turn * kChunk;
    const std::uint64_t rest = args.n - first;
    const unsigned count = rest < kChunk ? static_cast<unsigned>(rest) : kChunk;
    const std::uint64_t in_tiles =
        first / kTileElements * kHalvesTileBytes + first % kTileElements * sizeof(std::uint16_t);
    const std::uint64_t in_values = first * sizeof(Bits);
    Team::PerThread<State> state;
    team.each(state, [&](unsigned thread, State& s) {
      for (unsigned i = thread; i < count; i += team.threads()) {
        if constexpr (kNarrow) {
          const auto* const values = reinterpret_cast<const Bits*>(args.from + in_values);
          const std::uint16_t code = Code::of(Value::widened(values[i]));
          reinterpret_cast<std::uint16_t*>(args.to + in_tiles)[i] = code;
          s.bad |= Code::bad(code);
        } else {
          const std::uint16_t code =
              reinterpret_cast<const std::uint16_t*>(args.from + in_tiles)[i];
          reinterpret_cast<Bits*>(args.to + in_values)[i] = Value::narrowed(Code::value(code));
          s.bad |= Code::bad(code);
        }
      }
      report_non_finite(args.non_finite, s.bad);
    });
  }
};

// f(code, value) of the codec, kF16 or kBf16, and the elements, kF32 or kBf16.
template <typename F>
auto with_halves(FloatKind code, FloatKind elements, F f) {
  const auto with_code = [&](auto chosen) {
    return elements == FloatKind::kF32 ? f(chosen, FloatValue{}) : f(chosen, BfloatValue{});
  };
  return code == FloatKind::kF16 ? with_code(HalfCode{}) : with_code(BfloatCode{});
}

}  // namespace swarmline::kernels::cuda
