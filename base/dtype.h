// Element types that travel or are stored. Names are those of the config file and of safetensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace swarmline {

enum class DType : std::uint8_t {
  kF32 = 0,
  kF64 = 1,
  kF16 = 2,
  kBF16 = 3,
  kI8 = 4,
  kU16 = 5,
  kI32 = 6,
  kU32 = 7,
  kU8 = 8
};

constexpr std::size_t size_bytes(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kI32:
    case DType::kU32:
      return 4;
    case DType::kF64:
      return 8;
    case DType::kF16:
    case DType::kBF16:
    case DType::kU16:
      return 2;
    case DType::kI8:
    case DType::kU8:
      return 1;
  }
  return 0;
}

std::string_view safetensors_name(DType dtype);  // "F32", "BF16", ...
std::optional<DType> dtype_from_safetensors_name(std::string_view name);

}  // namespace swarmline
