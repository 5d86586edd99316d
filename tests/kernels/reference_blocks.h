// h8, fp8, int4 and h4 once more, as plainly as their format comments put them: for tests, and
// without a line of the headers that the kernels share.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/rng.h"
#include "kernels/quantize.h"

namespace swarmline::testing {

struct ReferenceCodes {
  std::vector<float> stored;  // a scale a block
  std::vector<std::uint8_t> codes;
  bool bad = false;
};
struct ReferenceValues {
  std::vector<float> values;
  bool bad = false;
};

class ReferenceBlocks {
 public:
  explicit ReferenceBlocks(const kernels::QuantSpec& spec) : spec_(spec) {
    if (is_fp8()) make_numbers();
  }

  ReferenceCodes quantize(const std::vector<float>& x, const kernels::StochasticKey* key) const {
    ReferenceCodes out;
    for (std::size_t begin = 0; begin < x.size(); begin += spec_.block) {
      const std::size_t end = std::min(x.size(), begin + spec_.block);
      std::vector<float> v(x.begin() + static_cast<std::ptrdiff_t>(begin),
                           x.begin() + static_cast<std::ptrdiff_t>(end));
      const bool finite = std::all_of(v.begin(), v.end(), [](float a) { return std::isfinite(a); });
      if (is_rotated()) {
        v.resize(spec_.block, 0.0F);
        for (float& a : v) a /= static_cast<float>(spec_.block);
        v = rotated(v);
      }
      float absmax = 0;
      for (float a : v) absmax = std::max(absmax, std::abs(a));
      const float stored = finite ? scale(absmax) : std::numeric_limits<float>::quiet_NaN();
      out.stored.push_back(stored);
      out.bad |= !finite;
      std::vector<int> codes(v.size(), 0);
      if (stored > 0) {
        const float inverse = 1.0F / stored;
        for (std::size_t i = 0; i < v.size(); ++i) codes[i] = code(v[i] * inverse, begin + i, key);
      }
      append(codes, out.codes);
    }
    return out;
  }

  ReferenceValues dequantize(const std::vector<float>& stored,
                             const std::vector<std::uint8_t>& codes, std::size_t n) const {
    ReferenceValues out;
    for (std::size_t begin = 0, b = 0; begin < n; begin += spec_.block, ++b) {
      const std::size_t size = std::min(n - begin, std::size_t{spec_.block});
      std::vector<float> q(is_rotated() ? spec_.block : size);
      for (std::size_t i = 0; i < q.size(); ++i) q[i] = number(codes, begin + i);
      if (is_rotated()) q = rotated(q);
      for (std::size_t i = 0; i < size; ++i) {
        float value = q[i] * stored[b];
        if (is_rotated() && std::isinf(value)) {
          value = std::copysign(std::numeric_limits<float>::max(), value);
        }
        // Whatever the largest code would overflow with is no scale, nor is a negative number.
        if (std::signbit(stored[b]) || !std::isfinite(stored[b] * top())) value = NAN;
        if (std::isnan(value)) value = std::bit_cast<float>(0x7FC00000U);
        out.bad |= !std::isfinite(value);
        out.values.push_back(value);
      }
    }
    return out;
  }

  float top() const {
    switch (spec_.format) {
      case kernels::QuantFormat::kE4M3:
        return 448;
      case kernels::QuantFormat::kE5M2:
        return 57344;
      case kernels::QuantFormat::kH8:
        return 127;
      default:
        return 7;
    }
  }
  bool is_rotated() const {
    return spec_.format == kernels::QuantFormat::kH8 || spec_.format == kernels::QuantFormat::kH4;
  }
  bool is_fp8() const {
    return spec_.format == kernels::QuantFormat::kE4M3 ||
           spec_.format == kernels::QuantFormat::kE5M2;
  }

  // The nearest of the numbers of fp8 (of the table, by comparing distances in double).
  int fp8_code(float y) const {
    const double a = std::abs(double{y});
    const auto above = std::lower_bound(numbers_.begin(), numbers_.end(), a);
    const auto i = static_cast<int>(above - numbers_.begin());
    int best = std::min(i, static_cast<int>(numbers_.size()) - 1);
    if (i > 0 && i < static_cast<int>(numbers_.size())) {
      const double up = *above - a;
      const double down = a - *(above - 1);
      if (down < up || (down == up && (i - 1) % 2 == 0)) best = i - 1;
    }
    return best + (std::signbit(y) ? 128 : 0);
  }
  const std::vector<double>& fp8_numbers() const { return numbers_; }  // of codes 0, 1, ...

 private:
  void make_numbers() {
    const bool e4m3 = spec_.format == kernels::QuantFormat::kE4M3;
    const int mantissa_bits = e4m3 ? 3 : 2;
    const int bias = e4m3 ? 7 : 15;
    const int steps = 1 << mantissa_bits;
    for (int code = 0; code < 128; ++code) {
      const int exponent = code / steps;
      const double mantissa = double{code % steps * 1.0} / steps;
      const double value = exponent == 0 ? std::ldexp(mantissa, 1 - bias)
                                         : std::ldexp(1 + mantissa, exponent - bias);
      if (value <= double{top()}) numbers_.push_back(value);
    }
  }

  static std::vector<float> rotated(const std::vector<float>& v) {
    std::vector<float> from = v;
    for (std::size_t distance = 1; distance < v.size(); distance *= 2) {
      std::vector<float> to(v.size());
      for (std::size_t i = 0; i < v.size(); ++i) {
        const bool lower = i / distance % 2 == 0;
        to[i] = lower ? from[i] + from[i + distance] : from[i - distance] - from[i];
      }
      from = to;
    }
    return from;
  }

  float scale(float absmax) const {
    if (absmax < std::ldexp(1.0F, -100)) return 0;
    float stored = absmax / top();
    if (spec_.scales == kernels::ScaleKind::kBf16) {
      const float step = std::ldexp(1.0F, std::ilogb(stored) - 7);  // of bf16, there
      double up = std::ceil(double{stored} / double{step}) * double{step};
      while (up > double{std::numeric_limits<float>::max()} ||
             !std::isfinite(static_cast<float>(up) * top())) {
        up -= double{step};
      }
      return static_cast<float>(up);
    }
    while (!std::isfinite(stored * top())) stored = std::nextafter(stored, 0.0F);
    return stored;
  }

  int code(float y, std::uint64_t position, const kernels::StochasticKey* key) const {
    if (is_fp8()) return fp8_code(y);
    float q = std::nearbyint(y);
    if (key != nullptr) {
      const std::uint64_t element = key->first_element + position;
      const auto words = philox4x32(
          {static_cast<std::uint32_t>(element / 8), key->stream[0], key->stream[1], key->stream[2]},
          {static_cast<std::uint32_t>(key->seed & 0xFFFFFFFFU),
           static_cast<std::uint32_t>(key->seed >> 32)});
      const std::uint32_t draw = words[element % 8 / 2] >> (16 * (element % 2)) & 0xFFFFU;
      const float sum = y + static_cast<float>(draw) / 65536.0F;
      q = std::floor(sum);
    }
    return static_cast<int>(std::clamp(q, -top(), top()));
  }

  void append(const std::vector<int>& codes, std::vector<std::uint8_t>& out) const {
    if (top() != 7) {
      for (int c : codes) out.push_back(static_cast<std::uint8_t>(c));
      return;
    }
    for (std::size_t i = 0; i < codes.size(); i += 2) {
      const int high = i + 1 < codes.size() ? codes[i + 1] : 0;
      out.push_back(static_cast<std::uint8_t>((codes[i] & 15) + 16 * (high & 15)));
    }
  }

  float number(const std::vector<std::uint8_t>& codes, std::size_t i) const {
    if (is_fp8()) {
      const std::size_t magnitude = codes[i] % 128;
      if (magnitude >= numbers_.size()) return NAN;
      const auto value = static_cast<float>(numbers_[magnitude]);
      return codes[i] >= 128 ? -value : value;
    }
    if (top() == 7) {
      const int nibble = i % 2 == 0 ? codes[i / 2] % 16 : codes[i / 2] / 16;
      return static_cast<float>(std::max(nibble >= 8 ? nibble - 16 : nibble, -7));
    }
    return static_cast<float>(std::max(codes[i] >= 128 ? codes[i] - 256 : int{codes[i]}, -127));
  }

  kernels::QuantSpec spec_;
  std::vector<double> numbers_;
};

}  // namespace swarmline::testing
