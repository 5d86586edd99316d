#include "base/dtype.h"

namespace swarmline {
namespace {

struct Row {
  DType dtype;
  std::string_view name;
};
constexpr Row kRows[] = {{DType::kF32, "F32"},   {DType::kF64, "F64"}, {DType::kF16, "F16"},
                         {DType::kBF16, "BF16"}, {DType::kI8, "I8"},   {DType::kU16, "U16"},
                         {DType::kI32, "I32"},   {DType::kU32, "U32"}, {DType::kU8, "U8"}};

}  // namespace

std::string_view safetensors_name(DType dtype) {
  for (const Row& row : kRows)
    if (row.dtype == dtype) return row.name;
  return "?";
}

std::optional<DType> dtype_from_safetensors_name(std::string_view name) {
  for (const Row& row : kRows)
    if (row.name == name) return row.dtype;
  return std::nullopt;
}

}  // namespace swarmline
