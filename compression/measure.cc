#include "compression/measure.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "kernels/kernels.h"

namespace swarmline {
namespace {

// As a number that double holds; widening a half needs its kernel.
double value_at(const std::byte* values, DType dtype, std::size_t i) {
  float single = 0;
  std::uint16_t half = 0;
  double wide = 0;
  switch (dtype) {
    case DType::kF64:
      std::memcpy(&wide, values + 8 * i, sizeof wide);
      return wide;
    case DType::kF16:
      std::memcpy(&half, values + 2 * i, sizeof half);
      kernels::fp16_to_fp32(&half, &single, 1);
      return single;
    case DType::kBF16:
      std::memcpy(&half, values + 2 * i, sizeof half);
      kernels::bf16_to_fp32(&half, &single, 1);
      return single;
    default:
      std::memcpy(&single, values + 4 * i, sizeof single);
      return single;
  }
}

class HostSample final : public TensorSample {
 public:
  HostSample(Buffer values, DType dtype) : values_(std::move(values)), dtype_(dtype) {}
  std::uint64_t elements() const override { return values_.size() / size_bytes(dtype_); }
  Result<CodecMeasurement> measure(const CodecSpec& codec,
                                   const kernels::StochasticKey* key) const override {
    const Buffer wire = encode(codec, values_.bytes(), dtype_, key);
    auto error = measure_error(wire.bytes(), values_.bytes(), dtype_);
    if (!error) return std::unexpected(std::move(error).error());
    return CodecMeasurement{.error = *error, .time = {}};
  }

 private:
  const Buffer values_;
  const DType dtype_;
};

}  // namespace

TensorSamplePtr host_sample(BytesView values, DType dtype, std::size_t elements) {
  const std::size_t bytes = std::min(values.size(), elements * size_bytes(dtype));
  if (bytes == 0) return nullptr;
  return std::make_shared<HostSample>(Buffer::copy_of(values.first(bytes)), dtype);
}

double CodecError::relative() const {
  if (squared_norm == 0) return squared_error == 0 ? 0 : std::nan("");
  return std::sqrt(squared_error / squared_norm);
}

CodecError& CodecError::operator+=(const CodecError& other) {
  squared_error += other.squared_error;
  squared_norm += other.squared_norm;
  return *this;
}

Result<CodecError> measure_error(BytesView wire, BytesView values, DType source) {
  Buffer decoded(values.size());
  SWARMLINE_TRY(decode(wire, source, decoded.bytes()));
  CodecError error;
  const std::size_t n = values.size() / size_bytes(source);
  for (std::size_t i = 0; i < n; ++i) {
    const double x = value_at(values.data(), source, i);
    const double d = value_at(decoded.data(), source, i) - x;
    error.squared_error += d * d;
    error.squared_norm += x * x;
  }
  return error;
}

}  // namespace swarmline
