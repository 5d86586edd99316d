#include "compression/sparse.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "kernels/kernels.h"

namespace swarmline {
namespace {

constexpr std::uint32_t kMagnitude = 0x7FFFFFFF;
constexpr std::uint32_t kInfinity = 0x7F800000;

template <typename T>
T load(const std::byte* at, std::size_t i) {
  T value;
  std::memcpy(&value, at + i * sizeof(T), sizeof value);
  return value;
}
template <typename T>
void store(std::byte* at, std::size_t i, T value) {
  std::memcpy(at + i * sizeof(T), &value, sizeof value);
}

std::uint32_t magnitude(const float* values, std::size_t i) {
  return load<std::uint32_t>(reinterpret_cast<const std::byte*>(values), i) & kMagnitude;
}

// Returns whether the stored value is not finite.
bool put(float value, DType target, std::byte* values, std::size_t i) {
  std::uint16_t half = 0;
  switch (target) {
    case DType::kF32:
      store(values, i, value);
      return !std::isfinite(value);
    case DType::kF64:
      store(values, i, static_cast<double>(value));
      return !std::isfinite(value);
    case DType::kF16: {
      const bool non_finite = kernels::fp32_to_fp16(&value, &half, 1);
      store(values, i, half);
      return non_finite;
    }
    case DType::kBF16: {
      const bool non_finite = kernels::fp32_to_bf16(&value, &half, 1);
      store(values, i, half);
      return non_finite;
    }
    default:
      SWARMLINE_CHECK_MSG(false, "not a floating-point target");
  }
}

}  // namespace

bool select_largest(const float* values, std::size_t n, std::size_t kept, std::byte* positions,
                    std::byte* kept_values) {
  SWARMLINE_CHECK(kept >= 1 && kept <= n && n <= 65536);
  std::vector<std::uint32_t> order(n);
  for (std::size_t i = 0; i < n; ++i) order[i] = magnitude(values, i);
  const auto last = order.begin() + static_cast<std::ptrdiff_t>(kept - 1);
  std::nth_element(order.begin(), last, order.end(), std::greater<>());
  const std::uint32_t threshold = *last;
  const auto larger = static_cast<std::size_t>(
      std::count_if(order.begin(), last, [&](std::uint32_t bits) { return bits > threshold; }));
  std::size_t equals = kept - larger;  // of those equal to the threshold, the first ones
  std::size_t out = 0;
  bool non_finite = false;
  for (std::size_t i = 0; i < n && out < kept; ++i) {
    const std::uint32_t bits = magnitude(values, i);
    if (bits < threshold || (bits == threshold && equals == 0)) continue;
    if (bits == threshold) --equals;
    non_finite |= bits >= kInfinity;
    store(positions, out, static_cast<std::uint16_t>(i));
    store(kept_values, out, load<float>(reinterpret_cast<const std::byte*>(values), i));
    ++out;
  }
  SWARMLINE_CHECK(out == kept);
  return non_finite;
}

bool positions_ascend(const std::byte* positions, std::size_t kept, std::size_t n) {
  std::size_t next = 0;  // least position allowed
  for (std::size_t k = 0; k < kept; ++k) {
    const std::size_t position = load<std::uint16_t>(positions, k);
    if (position < next || position >= n) return false;
    next = position + 1;
  }
  return true;
}

std::optional<bool> scatter_sparse(const std::byte* positions, const std::byte* kept_values,
                                   std::size_t kept, std::size_t n, DType target,
                                   std::byte* values) {
  if (!positions_ascend(positions, kept, n)) return std::nullopt;
  std::memset(values, 0, n * size_bytes(target));
  bool non_finite = false;
  for (std::size_t k = 0; k < kept; ++k)
    non_finite |=
        put(load<float>(kept_values, k), target, values, load<std::uint16_t>(positions, k));
  return non_finite;
}

}  // namespace swarmline
