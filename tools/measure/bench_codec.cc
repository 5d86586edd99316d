#include "tools/measure/bench_codec.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "compression/sample_tensors.h"
#include "engine/checkpoint/safetensors.h"
#include "kernels/kernels.h"

namespace swarmline {
namespace {

constexpr std::size_t kSampleElements = 1 << 20;  // at most, drawn once and then repeated
constexpr std::uint64_t kSpeedSeed = 1;

// A compiler must not drop a copy that nobody reads.
void keep(const void* data) {
  asm volatile("" : : "r"(data) : "memory");
}

// N(0, 1) as `source`, the sample over and over.
Buffer timed_tensor(DType source, std::uint64_t tensor_bytes) {
  const std::size_t elements =
      std::min<std::size_t>(kSampleElements, tensor_bytes / size_bytes(source));
  const std::vector<float> sample = make_sample(SampleTensor::kNormal, elements, kSpeedSeed);
  Buffer piece(elements * size_bytes(source));
  if (source == DType::kF32) {
    std::memcpy(piece.data(), sample.data(), piece.size());
  } else if (source == DType::kF16) {
    kernels::fp32_to_fp16(sample.data(), piece.as<std::uint16_t>().data(), sample.size());
  } else {
    kernels::fp32_to_bf16(sample.data(), piece.as<std::uint16_t>().data(), sample.size());
  }
  Buffer tensor(tensor_bytes);
  for (std::size_t at = 0; at < tensor.size(); at += piece.size()) {
    std::memcpy(tensor.data() + at, piece.data(), std::min(piece.size(), tensor.size() - at));
  }
  return tensor;
}

kernels::FloatKind float_kind(DType dtype) {
  SWARMLINE_CHECK(dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16);
  return dtype == DType::kF32   ? kernels::FloatKind::kF32
         : dtype == DType::kF16 ? kernels::FloatKind::kF16
                                : kernels::FloatKind::kBf16;
}

// One kernel both ways on buffers that are there already: what the wire buffer's making costs
// without checksums and allocation.
class KernelPair {
 public:
  KernelPair(const CodecSpec& codec, DType source, BytesView tensor)
      : spec_(quant_spec(codec)), codec_(codec), source_(source), tensor_(tensor) {
    n_ = tensor.size() / size_bytes(source);
    if (spec_) {
      scales_ =
          Buffer::zeroed(kernels::quant_blocks(*spec_, n_) * kernels::scale_bytes(spec_->scales));
      codes_ = Buffer::zeroed(kernels::code_bytes(*spec_, n_));
    } else if (is_conversion()) {
      codes_ = Buffer::zeroed(n_ * sizeof(std::uint16_t));
    }
  }

  bool exists() const { return spec_.has_value() || is_conversion(); }

  void quantize() {
    if (spec_) {
      kernels::quantize(*spec_, float_kind(source_), tensor_.data(), n_, nullptr, scales_.data(),
                        bytes_of(codes_));
    } else if (codec_.kind == CodecKind::kFp16) {
      kernels::fp32_to_fp16(floats(tensor_), codes_.as<std::uint16_t>().data(), n_);
    } else {
      kernels::fp32_to_bf16(floats(tensor_), codes_.as<std::uint16_t>().data(), n_);
    }
  }

  void dequantize(MutableBytes out) {
    if (spec_) {
      kernels::dequantize(*spec_, scales_.data(), bytes_of(codes_), n_, float_kind(source_),
                          out.data());
    } else if (codec_.kind == CodecKind::kFp16) {
      kernels::fp16_to_fp32(codes_.as<std::uint16_t>().data(), reinterpret_cast<float*>(out.data()),
                            n_);
    } else {
      kernels::bf16_to_fp32(codes_.as<std::uint16_t>().data(), reinterpret_cast<float*>(out.data()),
                            n_);
    }
  }

 private:
  bool is_conversion() const {
    return source_ == DType::kF32 &&
           (codec_.kind == CodecKind::kFp16 || codec_.kind == CodecKind::kBf16);
  }
  static std::uint8_t* bytes_of(Buffer& buffer) {
    return reinterpret_cast<std::uint8_t*>(buffer.data());
  }
  static const float* floats(BytesView view) { return reinterpret_cast<const float*>(view.data()); }

  std::optional<kernels::QuantSpec> spec_;
  CodecSpec codec_;
  DType source_;
  BytesView tensor_;
  std::size_t n_ = 0;
  Buffer scales_, codes_;
};

class Stopwatch {
 public:
  explicit Stopwatch(const SecondsClock& clock) : clock_(clock) {}
  template <typename Work>
  void best(double& seconds, const Work& work) const {
    const double start = clock_();
    work();
    seconds = std::min(seconds, clock_() - start);
  }

 private:
  const SecondsClock& clock_;
};

// As fp32, for the check.
std::vector<float> as_floats(BytesView values, DType dtype) {
  std::vector<float> floats(values.size() / size_bytes(dtype));
  const auto* halves = reinterpret_cast<const std::uint16_t*>(values.data());
  if (dtype == DType::kF32) {
    std::memcpy(floats.data(), values.data(), values.size());
  } else if (dtype == DType::kF16) {
    kernels::fp16_to_fp32(halves, floats.data(), floats.size());
  } else {
    kernels::bf16_to_fp32(halves, floats.data(), floats.size());
  }
  return floats;
}

struct ErrorSums {
  double squared_error = 0, squared_norm = 0, squared_decoded = 0, product = 0;
  double max_error = 0, max_value = 0;

  void add(float original, float decoded) {
    const double x = original, y = decoded, error = y - x;
    squared_error += error * error;
    squared_norm += x * x;
    squared_decoded += y * y;
    product += x * y;
    max_error = larger(max_error, std::abs(error));
    max_value = larger(max_value, std::abs(x));
  }
  static double larger(double a, double b) { return std::isnan(a) || a > b ? a : b; }
  static double ratio(double part, double whole) { return whole == 0 ? 0 : part / whole; }

  double relative_l2() const { return std::sqrt(ratio(squared_error, squared_norm)); }
  double cosine() const {
    return ratio(product, std::sqrt(squared_norm) * std::sqrt(squared_decoded));
  }
  double relative_max() const { return ratio(max_error, max_value); }
};

// Far more than the codec's error on N(0, 1), far less than that of a codec that does not work.
double error_bound(const CodecSpec& codec) {
  switch (codec.kind) {
    case CodecKind::kNone:
      return 0;
    case CodecKind::kInt4:
    case CodecKind::kH4:
      return 0.15;
    case CodecKind::kTopK:
      return 1;
    default:
      return 0.06;
  }
}

Result<void> check_decoded(const CodecSpec& codec, DType source, BytesView tensor, BytesView out) {
  const std::size_t bytes = std::min(tensor.size(), kSampleElements * size_bytes(source));
  const std::vector<float> original = as_floats(tensor.first(bytes), source);
  const std::vector<float> decoded = as_floats(out.first(bytes), source);
  ErrorSums sums;
  for (std::size_t i = 0; i < original.size(); ++i) sums.add(original[i], decoded[i]);
  if (sums.relative_l2() <= error_bound(codec)) return {};
  return fail(ErrorCode::kCorrupt,
              "codec " + to_string(codec) + " gives wrong values back: off by " +
                  std::to_string(sums.relative_l2()) + " of the tensor's size");
}

}  // namespace

Result<CodecSpeed> measure_codec_speed(const CodecSpec& codec, DType source,
                                       std::uint64_t tensor_bytes, int rounds,
                                       const SecondsClock& clock) {
  SWARMLINE_CHECK(tensor_bytes > 0 && tensor_bytes % size_bytes(source) == 0 && rounds > 0);
  const Buffer tensor = timed_tensor(source, tensor_bytes);
  Buffer out = Buffer::zeroed(tensor_bytes);
  Buffer wire = encode(codec, tensor.bytes(), source);
  SWARMLINE_TRY(decode(wire.bytes(), source, out.bytes()));
  SWARMLINE_TRY(check_decoded(codec, source, tensor.bytes(), out.bytes()));

  constexpr double kNever = std::numeric_limits<double>::max();
  CodecSpeed speed{.codec = codec,
                   .source = source,
                   .tensor_bytes = tensor_bytes,
                   .wire_bytes = wire.size(),
                   .copy_seconds = kNever,
                   .encode_seconds = kNever,
                   .decode_seconds = kNever,
                   .quantize_seconds = {},
                   .dequantize_seconds = {}};
  KernelPair kernel(codec, source, tensor.bytes());
  if (kernel.exists()) {
    kernel.quantize();
    speed.quantize_seconds = speed.dequantize_seconds = kNever;
  }
  const Stopwatch watch(clock);
  for (int round = 0; round < rounds; ++round) {
    watch.best(speed.copy_seconds, [&] {
      std::memcpy(out.data(), tensor.data(), tensor_bytes);
      keep(out.data());
    });
    if (kernel.exists()) {
      watch.best(*speed.quantize_seconds, [&] { kernel.quantize(); });
      watch.best(*speed.dequantize_seconds, [&] { kernel.dequantize(out.bytes()); });
    }
    wire = Buffer();  // as on a peer, the memory of an earlier tensor is free again
    watch.best(speed.encode_seconds, [&] { wire = encode(codec, tensor.bytes(), source); });
    Result<void> decoded;
    watch.best(speed.decode_seconds, [&] { decoded = decode(wire.bytes(), source, out.bytes()); });
    SWARMLINE_TRY(std::move(decoded));
  }
  return speed;
}

Result<CodecAccuracy> measure_codec_accuracy(const CodecSpec& codec, const BenchTensor& tensor) {
  const BytesView values = std::as_bytes(std::span(tensor.values));
  const Buffer wire = encode(codec, values, DType::kF32);
  Buffer out(values.size());
  SWARMLINE_TRY(decode(wire.bytes(), DType::kF32, out.bytes()));
  const auto decoded = std::as_const(out).as<float>();
  ErrorSums sums;
  for (std::size_t i = 0; i < tensor.values.size(); ++i) sums.add(tensor.values[i], decoded[i]);
  const auto elements = static_cast<double>(tensor.values.size());
  return CodecAccuracy{
      .codec = codec,
      .tensor = tensor.name,
      .elements = tensor.values.size(),
      .bits_per_element = ErrorSums::ratio(8 * static_cast<double>(wire.size()), elements),
      .relative_l2 = sums.relative_l2(),
      .cosine = sums.cosine(),
      .max_error = sums.relative_max()};
}

Result<std::vector<BenchTensor>> read_bench_tensors(const std::string& path) {
  auto file = SafetensorsFile::open(path);
  if (!file) return std::unexpected(std::move(file).error());
  std::vector<BenchTensor> tensors;
  for (const TensorInfo& info : file->tensors()) {
    if (info.dtype != DType::kF32 && info.dtype != DType::kF16 && info.dtype != DType::kBF16) {
      continue;
    }
    tensors.push_back({.name = info.name, .values = as_floats(file->bytes(info), info.dtype)});
  }
  if (tensors.empty()) {
    return fail(ErrorCode::kNotFound, path + ": found no tensor of fp32, fp16 or bf16");
  }
  return tensors;
}

}  // namespace swarmline
