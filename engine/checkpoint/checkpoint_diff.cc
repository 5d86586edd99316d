#include "engine/checkpoint/checkpoint_diff.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/byte_ops.h"

namespace swarmline {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <typename T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

double from_half(std::uint16_t bits) {
  const int exponent = bits >> 10 & 0x1F;
  const int fraction = bits & 0x3FF;
  const double sign = bits >> 15 ? -1 : 1;
  if (exponent == 0x1F) return fraction == 0 ? sign * kInfinity : std::nan("");
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(fraction + 1024, exponent - 25);
}

double load_number(DType dtype, const std::byte* from) {
  switch (dtype) {
    case DType::kF32:
      return load<float>(from);
    case DType::kF64:
      return load<double>(from);
    case DType::kF16:
      return from_half(load<std::uint16_t>(from));
    case DType::kBF16:
      return std::bit_cast<float>(std::uint32_t{load<std::uint16_t>(from)} << 16);
    case DType::kI8:
      return load<std::int8_t>(from);
    case DType::kU16:
      return load<std::uint16_t>(from);
    case DType::kI32:
      return load<std::int32_t>(from);
    case DType::kU32:
      return load<std::uint32_t>(from);
    case DType::kU8:
      return load<std::uint8_t>(from);
  }
  return 0;
}

// What makes a tensor's numbers differ, gathered element by element.
class Differences {
 public:
  explicit Differences(TensorDiff& out) : out_(out) {}

  void add(double a, double b) {
    if (std::isfinite(a)) peak_ = std::max(peak_, std::abs(a));
    if (a == b || (std::isnan(a) && std::isnan(b))) return;
    ++out_.elements_different;
    const bool numbers = std::isfinite(a) && std::isfinite(b);
    const double difference = numbers ? std::abs(a - b) : kInfinity;
    out_.max_abs = std::max(out_.max_abs, difference);
    const double relative = numbers ? difference / std::max(std::abs(a), std::abs(b)) : kInfinity;
    out_.max_rel = std::max(out_.max_rel, relative);
  }
  void finish() {
    if (out_.max_abs > 0) out_.max_rel_to_peak = peak_ > 0 ? out_.max_abs / peak_ : kInfinity;
  }

 private:
  TensorDiff& out_;
  double peak_ = 0;  // largest finite |a|
};

TensorDiff diff_tensor(const CheckpointReader::Tensor& a, const CheckpointReader::Tensor& b) {
  TensorDiff diff{.name = a.info->name,
                  .shape = a.info->shape,
                  .dtype_a = a.info->dtype,
                  .dtype_b = b.info->dtype};
  diff.equal_bits = a.info->dtype == b.info->dtype && same_bytes(a.bytes, b.bytes);
  if (diff.equal_bits) return diff;

  const std::size_t step_a = size_bytes(a.info->dtype);
  const std::size_t step_b = size_bytes(b.info->dtype);
  const std::size_t elements = a.bytes.size() / step_a;
  Differences differences(diff);
  for (std::size_t i = 0; i < elements; ++i) {
    differences.add(load_number(a.info->dtype, a.bytes.data() + i * step_a),
                    load_number(b.info->dtype, b.bytes.data() + i * step_b));
  }
  differences.finish();
  return diff;
}

}  // namespace

bool CheckpointDiff::equal_bits() const {
  return same_tensors() && std::ranges::all_of(tensors, &TensorDiff::equal_bits);
}

CheckpointDiff diff_checkpoints(const CheckpointReader& a, const CheckpointReader& b) {
  CheckpointDiff diff{.path_a = a.path(), .path_b = b.path()};
  diff.state_in_a = !a.state_tensors().empty();
  diff.state_in_b = !b.state_tensors().empty();
  for (const auto& [name, tensor] : a.tensors()) {
    const auto other = b.tensors().find(name);
    if (other == b.tensors().end()) {
      diff.only_in_a.push_back(name);
    } else if (tensor.info->shape != other->second.info->shape) {
      diff.mismatches.push_back({name, tensor.info->shape, other->second.info->shape});
    } else {
      diff.tensors.push_back(diff_tensor(tensor, other->second));
    }
  }
  for (const auto& [name, tensor] : b.tensors()) {
    if (!a.tensors().contains(name)) diff.only_in_b.push_back(name);
  }
  return diff;
}

Result<CheckpointDiff> diff_checkpoints(const std::string& path_a, const std::string& path_b) {
  const Result<CheckpointReader> a = CheckpointReader::open(path_a);
  if (!a) return std::unexpected(a.error());
  const Result<CheckpointReader> b = CheckpointReader::open(path_b);
  if (!b) return std::unexpected(b.error());
  return diff_checkpoints(*a, *b);
}

}  // namespace swarmline
