#include "engine/huggingface/float_convert.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "base/byte_ops.h"
#include "base/check.h"
#include "kernels/kernels.h"

namespace swarmline {
namespace {

constexpr std::size_t kChunk = 1024;  // elements on the stack at a time

void to_fp32(DType type, const std::byte* from, std::size_t count, float* out) {
  alignas(kBufferAlignment) std::array<std::byte, kChunk * sizeof(double)> aligned;
  std::memcpy(aligned.data(), from, count * size_bytes(type));
  if (type == DType::kF32) std::memcpy(out, aligned.data(), count * sizeof(float));
  if (type == DType::kF64)
    kernels::fp64_to_fp32(reinterpret_cast<const double*>(aligned.data()), out, count);
  if (type == DType::kF16)
    kernels::fp16_to_fp32(reinterpret_cast<const std::uint16_t*>(aligned.data()), out, count);
  if (type == DType::kBF16)
    kernels::bf16_to_fp32(reinterpret_cast<const std::uint16_t*>(aligned.data()), out, count);
}

void from_fp32(const float* from, std::size_t count, DType type, std::byte* out) {
  alignas(kBufferAlignment) std::array<std::byte, kChunk * sizeof(double)> aligned;
  if (type == DType::kF32) std::memcpy(aligned.data(), from, count * sizeof(float));
  if (type == DType::kF64)
    kernels::fp32_to_fp64(from, reinterpret_cast<double*>(aligned.data()), count);
  if (type == DType::kF16)
    kernels::fp32_to_fp16(from, reinterpret_cast<std::uint16_t*>(aligned.data()), count);
  if (type == DType::kBF16)
    kernels::fp32_to_bf16(from, reinterpret_cast<std::uint16_t*>(aligned.data()), count);
  std::memcpy(out, aligned.data(), count * size_bytes(type));
}

}  // namespace

bool is_float(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF64 || dtype == DType::kF16 ||
         dtype == DType::kBF16;
}

void convert_floats(DType from_type, BytesView from, DType to_type, MutableBytes to) {
  SWARMLINE_CHECK(is_float(from_type) && is_float(to_type));
  const std::size_t from_bytes = size_bytes(from_type), to_bytes = size_bytes(to_type);
  const std::size_t elements = from.size() / from_bytes;
  SWARMLINE_CHECK(to.size() == elements * to_bytes);
  if (from_type == to_type) {
    copy_bytes(from, to);
    return;
  }
  alignas(kBufferAlignment) std::array<float, kChunk> values;
  for (std::size_t at = 0; at < elements; at += kChunk) {
    const std::size_t count = std::min(kChunk, elements - at);
    to_fp32(from_type, from.data() + at * from_bytes, count, values.data());
    from_fp32(values.data(), count, to_type, to.data() + at * to_bytes);
  }
}

}  // namespace swarmline
