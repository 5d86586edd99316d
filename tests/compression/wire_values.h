// Codecs and buffers that the tests of this folder share.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "compression/codec.h"
#include "tests/kernels/samples.h"

namespace swarmline::testing {

inline std::vector<CodecSpec> all_codecs() {
  std::vector<CodecSpec> codecs;
  const auto add = [&](const char* name, const CodecOptions& options = {}) {
    const auto codec = parse_codec(name, options);
    EXPECT_TRUE(codec.has_value()) << name;
    if (codec) codecs.push_back(*codec);
  };
  for (const char* name :
       {"none", "fp16", "bf16", "lin8", "dyn8", "h8", "fp8", "e5m2", "int4", "h4", "topk"})
    add(name);
  add("lin8", {.block = 64});
  add("lin8", {.block = 4096});
  add("dyn8", {.block = 4096});
  add("lin8", {.scales = kernels::ScaleKind::kBf16});
  add("h8", {.scales = kernels::ScaleKind::kBf16});
  add("int4", {.scales = kernels::ScaleKind::kBf16});
  add("topk", {.topk = 1});
  return codecs;
}

inline std::string test_name(const CodecSpec& codec) {
  std::string name = to_string(codec);
  for (char& c : name)
    if (c == '/' || c == '+') c = '_';
  return name;
}

template <typename T>
BytesView view(const std::vector<T>& values) {
  return {reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(T)};
}
template <typename T>
MutableBytes writable(std::vector<T>& values) {
  return {reinterpret_cast<std::byte*>(values.data()), values.size() * sizeof(T)};
}
template <typename T>
constexpr DType kDType = std::is_same_v<T, float> ? DType::kF32 : DType::kF64;

template <typename T>
Buffer encode_values(const CodecSpec& codec, const std::vector<T>& values,
                     const kernels::StochasticKey* key = nullptr) {
  return encode(codec, view(values), kDType<T>, key);
}
template <typename T>
std::vector<T> decode_values(BytesView wire, std::size_t n) {
  std::vector<T> values(n);
  const auto decoded = decode(wire, kDType<T>, writable(values));
  EXPECT_TRUE(decoded.has_value()) << (decoded ? "" : decoded.error().what);
  return values;
}
template <typename T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && first_difference(a, b) == a.size();
}

}  // namespace swarmline::testing
