// How far a codec is from the tensor it carries, and how long it takes.
#pragma once

#include <memory>
#include <optional>

#include "base/units.h"
#include "compression/codec.h"

namespace swarmline {

// Sums over a tensor, in double: ready to be added to those of other tensors. The host sums in
// order, a device in an order of its own.
struct CodecError {
  double squared_error = 0;
  double squared_norm = 0;
  // |decoded - values| / |values|; 0 where both are nothing. NaN where something was not finite.
  double relative() const;
  CodecError& operator+=(const CodecError& other);
};

// `wire` carries `values` (kF32, kF64, kF16 or kBF16). kCorrupt or kIncompatible where it does not
// decode to as many elements.
Result<CodecError> measure_error(BytesView wire, BytesView values, DType source);

struct CodecMeasurement {
  CodecError error;
  // Encoding and decoding. None where there is no clock: then it is what the job took.
  std::optional<Duration> time;
};

// The beginning of a tensor, kept in the memory where its codec works.
//   Thread: measure() on the device's; any thread may drop it.
class TensorSample {
 public:
  virtual ~TensorSample() = default;
  virtual std::uint64_t elements() const = 0;
  // Encodes, decodes and compares. Errors: the codec's.
  virtual Result<CodecMeasurement> measure(const CodecSpec& codec,
                                           const kernels::StochasticKey* key) const = 0;
};
using TensorSamplePtr = std::shared_ptr<const TensorSample>;

// A copy of the first `elements` of `values` at most, in the host's memory; null where that is
// nothing.
TensorSamplePtr host_sample(BytesView values, DType dtype, std::size_t elements);

}  // namespace swarmline
