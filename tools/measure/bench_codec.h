// What each codec costs and loses on this machine: `swarmline bench codec` (docs/formats/bench.md).
//   Speeds:    of one core, on N(0, 1) in memory that no cache holds: the kernels alone, and the
//              whole wire buffer with its checksums as a peer makes and reads it. Each beside a
//              memcpy of the same bytes that takes turns with it; the best of several rounds of
//              each, since another program can only slow one down.
//   Errors:    of what a fp32 tensor comes back as, over all its elements, in double.
//   Ownership: values. Thread: one. Bounds: kBenchMibMax of tensor, and three times as much beside.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "compression/codec.h"

namespace swarmline {

inline constexpr std::uint64_t kBenchMibMax = 4096;

// Seconds from some moment, never backwards.
using SecondsClock = std::function<double()>;

struct CodecSpeed {
  CodecSpec codec;
  DType source = DType::kF32;
  std::uint64_t tensor_bytes = 0;  // uncompressed, as `source`: what rates are of
  std::uint64_t wire_bytes = 0;    // of its wire buffer
  double copy_seconds = 0;         // memcpy of tensor_bytes
  double encode_seconds = 0;       // the wire buffer
  double decode_seconds = 0;
  // The kernel alone: codes and scales, no checksums. Absent for topk, which is more than a kernel,
  // and for conversions that need none.
  std::optional<double> quantize_seconds;
  std::optional<double> dequantize_seconds;
};

// `codec` on `tensor_bytes` (whole elements, above 0) of `source` (kF32, kF16 or kBF16), `rounds`
// times after one to warm up.
// kCorrupt if a decoded value is further from its original than the codec may be.
Result<CodecSpeed> measure_codec_speed(const CodecSpec& codec, DType source,
                                       std::uint64_t tensor_bytes, int rounds,
                                       const SecondsClock& clock);

struct BenchTensor {
  std::string name;
  std::vector<float> values;
};

struct CodecAccuracy {
  CodecSpec codec;
  std::string tensor;
  std::uint64_t elements = 0;
  double bits_per_element = 0;  // of the wire buffer, header and checksums included
  double relative_l2 = 0;       // |decoded - x| / |x|
  double cosine = 0;            // of decoded and x
  double max_error = 0;         // max |decoded - x| / max |x|
};

// Ratios with nothing below them are 0; what is not finite comes out as NaN.
Result<CodecAccuracy> measure_codec_accuracy(const CodecSpec& codec, const BenchTensor& tensor);

// The tensors of a safetensors file that hold fp32, fp16 or bf16, as fp32, by offset. kNotFound: it
// holds none.
Result<std::vector<BenchTensor>> read_bench_tensors(const std::string& path);

}  // namespace swarmline
