// lin8 and dyn8 once more, as plainly as their format comments put them: for tests, and without a
// line of the headers that the kernels share. The codebooks come from bitsandbytes itself, by way
// of tests/fixtures/dyn8_bitsandbytes.bin.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/quantize.h"
#include "tests/kernels/dyn8_fixture.h"
#include "tests/kernels/reference_blocks.h"

namespace swarmline::testing {

// The 16 bits of Philox4x32-10 that a position gets.
inline std::uint32_t reference_draw(const kernels::StochasticKey& key, std::uint64_t position) {
  std::array<std::uint32_t, 4> c = {static_cast<std::uint32_t>(position / 8), key.stream[0],
                                    key.stream[1], key.stream[2]};
  std::array<std::uint32_t, 2> k = {static_cast<std::uint32_t>(key.seed),
                                    static_cast<std::uint32_t>(key.seed >> 32)};
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = 0xD2511F53ULL * c[0];
    const std::uint64_t b = 0xCD9E8D57ULL * c[2];
    c = {static_cast<std::uint32_t>(b >> 32) ^ c[1] ^ k[0], static_cast<std::uint32_t>(b),
         static_cast<std::uint32_t>(a >> 32) ^ c[3] ^ k[1], static_cast<std::uint32_t>(a)};
    k = {k[0] + 0x9E3779B9U, k[1] + 0xBB67AE85U};
  }
  return c.at(position % 8 / 2) >> (16 * (position % 2)) & 0xFFFFU;
}

class ReferenceQuantizer {
 public:
  explicit ReferenceQuantizer(const kernels::QuantSpec& spec)
      : spec_(spec),
        is_signed_(spec.format == kernels::QuantFormat::kDyn8),
        book_(is_signed_ ? dyn8_fixture().signed_book : dyn8_fixture().unsigned_book) {
    make_lines();
  }

  ReferenceCodes quantize(const std::vector<float>& x, const kernels::StochasticKey* key) const {
    ReferenceCodes out;
    out.codes.resize(x.size());
    for (std::size_t begin = 0; begin < x.size(); begin += spec_.block) {
      const std::size_t end = std::min(x.size(), begin + spec_.block);
      std::uint32_t absmax = 0;
      for (std::size_t i = begin; i < end; ++i) {
        absmax = std::max(absmax, std::bit_cast<std::uint32_t>(x[i]) & 0x7FFFFFFFU);
      }
      const float stored = scale(std::bit_cast<float>(absmax));
      out.stored.push_back(stored);
      out.bad |= std::isnan(stored);
      const float inverse = 1.0F / stored;
      for (std::size_t i = begin; i < end; ++i) {
        std::uint8_t code = is_lin8() || std::isnan(stored) || !is_signed_ ? 0 : 127;
        if (stored > 0) code = code_of(x[i] * inverse, i, key);
        out.codes[i] = code;
      }
    }
    return out;
  }

  ReferenceValues dequantize(const std::vector<float>& stored,
                             const std::vector<std::uint8_t>& codes, std::size_t n) const {
    ReferenceValues out;
    out.values.resize(n);
    for (std::size_t i = 0; i < n; ++i) {
      const float s = stored[i / spec_.block];
      float value = number(codes[i]) * s;
      if (std::signbit(s) || !std::isfinite(s * top())) value = NAN;
      if (std::isnan(value)) value = std::bit_cast<float>(0x7FC00000U);
      out.bad |= std::isnan(value);
      out.values[i] = value;
    }
    return out;
  }

 private:
  static constexpr int kDecades = 9;

  bool is_lin8() const { return spec_.format == kernels::QuantFormat::kLin8; }
  float top() const { return is_lin8() ? 127.0F : 1.0F; }

  float scale(float absmax) const {
    if (!std::isfinite(absmax)) return std::bit_cast<float>(0x7FC00000U);
    if (absmax < 0x1p-100F) return 0;
    const bool narrow = spec_.scales == kernels::ScaleKind::kBf16;
    const std::uint32_t step = narrow ? 0x10000 : 1;
    auto bits = std::bit_cast<std::uint32_t>(absmax / top());
    bits = (bits + step - 1) / step * step;
    while (!std::isfinite(std::bit_cast<float>(bits) * top())) bits -= step;
    return std::bit_cast<float>(bits);
  }

  std::uint8_t code_of(float y, std::size_t i, const kernels::StochasticKey* key) const {
    if (is_lin8()) {
      float q = std::nearbyint(y);
      if (key != nullptr) {
        const float u = static_cast<float>(reference_draw(*key, key->first_element + i)) / 65536.0F;
        q = std::floor(y + u);
      }
      return static_cast<std::uint8_t>(static_cast<std::int8_t>(std::clamp(q, -127.0F, 127.0F)));
    }
    const float a = is_signed_ ? std::abs(y) : std::max(y, 0.0F);
    std::size_t d = 0;
    while (d + 1 < kDecades && a >= threshold_[d + 1]) ++d;
    const float product = a * slope_[d];
    const auto j = static_cast<int>(std::min(product + offset_[d], last_[d]));
    if (!is_signed_) return static_cast<std::uint8_t>(j - 1);
    return static_cast<std::uint8_t>(std::max(y < 0 ? 127 - j : 127 + j, 0));
  }

  float number(std::uint8_t code) const {
    if (!is_lin8()) return book_[code];
    return static_cast<float>(std::max<int>(static_cast<std::int8_t>(code), -127));
  }

  // Thresholds are by codes' positions in the book, the lines by the formulas.
  void make_lines() {
    const int first = is_signed_ ? 1 : 2;    // j of decade 1, and its number of codes
    const int zero = is_signed_ ? 127 : -1;  // code of j = 0
    offset_[0] = last_[0] = static_cast<float>(first - 1);
    for (int d = 1; d < kDecades; ++d) {
      const int n = first << (d - 1);
      const auto at = static_cast<std::size_t>(zero + n);
      const float sum = book_[at - 1] + book_[at];
      const auto i = static_cast<std::size_t>(d);
      threshold_[i] = sum * 0.5F;
      const double s = std::pow(10.0, d - 7);
      slope_[i] = d == 8 || n == 1 ? 0.0F : static_cast<float>(n / (0.9 * s));
      offset_[i] = d == 8 || n == 1 ? static_cast<float>(n) : static_cast<float>(n * 8.0 / 9.0);
      last_[i] = static_cast<float>(d == 8 ? n : 2 * n - 1);
    }
  }

  kernels::QuantSpec spec_;
  bool is_signed_;
  std::array<float, 256> book_;
  std::array<float, kDecades> threshold_ = {}, slope_ = {}, offset_ = {}, last_ = {};
};

}  // namespace swarmline::testing
