#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/rng.h"
#include "engine/model/model_spec.h"

namespace swarmline {
namespace {

// log and cos are written out with IEEE operations only: the C library picks fused variants by
// processor, and replicas on different machines must start with the same bits.

// Natural logarithm of a positive normal double, within 2 ulp: x = m 2^e with m in [sqrt(1/2),
// sqrt(2)).
double log_of(double x) {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  int exponent = static_cast<int>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0xFFFFFFFFFFFFFULL) | 0x3FF0000000000000ULL);
  if (m > 1.4142135623730951) {
    m *= 0.5;
    ++exponent;
  }
  const double s = (m - 1.0) / (m + 1.0);  // log m = 2 atanh s, |s| < 0.172
  const double s2 = s * s;
  double sum = 0.0;
  for (int k = 21; k >= 1; k -= 2) sum = sum * s2 + 1.0 / k;
  return exponent * 0.69314718055994530942 + 2.0 * s * sum;
}

// (cos, sin) of a quarter turn's part: angle in [0, pi/2).
std::pair<double, double> cos_sin(double angle) {
  const double a2 = angle * angle;
  double cosine = 0.0;
  double sine = 0.0;
  for (int k = 22; k >= 2; k -= 2) {
    cosine = (cosine + 1.0) * (-a2 / (k * (k - 1)));
    sine = (sine + 1.0) * (-a2 / (k * (k + 1)));
  }
  return {cosine + 1.0, (sine + 1.0) * angle};
}

double unit_double(std::uint32_t high, std::uint32_t low) {
  return static_cast<double>((std::uint64_t{high} << 32 | low) >> 11) * 0x1.0p-53;
}

// Two independent standard normals (Box-Muller) from one Philox block.
std::pair<double, double> normal_pair(std::uint64_t block, PhiloxKey key) {
  const auto words = philox4x32(
      {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), 0, 0}, key);
  const double radius = std::sqrt(-2.0 * log_of(1.0 - unit_double(words[0], words[1])));
  const double turns = 4.0 * unit_double(words[2], words[3]);  // quarter turns
  const int quarter = static_cast<int>(turns);
  const auto [c, s] = cos_sin((turns - quarter) * 1.57079632679489661923);
  switch (quarter) {
    case 0:
      return {radius * c, radius * s};
    case 1:
      return {-radius * s, radius * c};
    case 2:
      return {-radius * c, -radius * s};
    default:
      return {radius * s, -radius * c};
  }
}

template <typename T>
void fill_normal(std::uint64_t seed, const ParameterSlot& slot, double std, T* out) {
  const std::uint64_t name_key = mix(mix(seed, hash_name("init")), hash_name(slot.name));
  const PhiloxKey key = {static_cast<std::uint32_t>(name_key),
                         static_cast<std::uint32_t>(name_key >> 32)};
  for (std::uint64_t i = 0; i < slot.elements; i += 2) {
    const auto [first, second] = normal_pair(i / 2, key);
    out[i] = static_cast<T>(std * first);
    if (i + 1 < slot.elements) out[i + 1] = static_cast<T>(std * second);
  }
}

// The two matrices of a learned boundary begin as a projection of the residual stream: narrow
// channel i is the sum of its `factor` wide neighbours over sqrt(factor), and comes back to each of
// them over sqrt(factor). Small random matrices would mix up all channels and drown what passes in
// the optimizer's first steps.
template <typename T>
void fill_projection(const ParameterSlot& slot, std::int64_t factor, double value, T* out) {
  const std::int64_t columns = slot.shape[1];
  const bool down = slot.shape[0] < columns;
  for (std::int64_t row = 0; row < slot.shape[0]; ++row) {
    for (std::int64_t column = 0; column < columns; ++column) {
      const bool joined = down ? column / factor == row : row / factor == column;
      out[row * columns + column] = joined ? static_cast<T>(value) : T{0};
    }
  }
}

template <typename T>
void initialise(const ModelSpec& spec, const ParameterLayout& layout, T* arena) {
  const ModelSection& shape = spec.shape;
  for (const ParameterSlot& slot : layout.slots) {
    T* const out = arena + slot.offset;
    if (slot.name.ends_with(".bias")) continue;
    if (slot.name.ends_with("norm.weight")) {
      std::fill_n(out, slot.elements, T{1});
      continue;
    }
    if (slot.name.starts_with("boundary.")) {
      fill_projection(slot, shape.boundary_factor, 1 / std::sqrt(double(shape.boundary_factor)),
                      out);
      continue;
    }
    // What adds to the residual stream starts smaller, so that its variance does not grow with
    // depth (GPT-2).
    const bool residual =
        slot.name.ends_with("attention.o.weight") || slot.name.ends_with("mlp.down.weight");
    const double std = residual ? shape.init_std / std::sqrt(2.0 * shape.layers) : shape.init_std;
    fill_normal(spec.seed, slot, std, out);
  }
}

}  // namespace

void initialise_parameters(const ModelSpec& spec, const ParameterLayout& layout, std::byte* arena) {
  std::memset(arena, 0, layout.bytes());
  if (layout.dtype == DType::kF64) {
    initialise(spec, layout, reinterpret_cast<double*>(arena));
  } else {
    SWARMLINE_CHECK(layout.dtype == DType::kF32);
    initialise(spec, layout, reinterpret_cast<float*>(arena));
  }
}

}  // namespace swarmline
