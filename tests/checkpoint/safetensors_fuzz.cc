// parse_safetensors() on any bytes: no crash, and what it accepts lies within the file, back to
// back.

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "engine/checkpoint/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const swarmline::BytesView file(reinterpret_cast<const std::byte*>(data), size);
  const auto header = swarmline::parse_safetensors(file, "fuzz");
  if (!header) return 0;
  std::uint64_t next = 0;
  for (const swarmline::TensorInfo& tensor : header->tensors) {
    if (tensor.offset != next || tensor.shape.size() > swarmline::kTensorRankMax) std::abort();
    next += tensor.bytes;
  }
  if (header->data_start + next != size) std::abort();
  return 0;
}
