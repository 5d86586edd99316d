// How far a codec is from the tensor it carries.
#pragma once

#include "compression/codec.h"

namespace swarmline {

// Sums over a tensor, in double, in order: ready to be added to those of other tensors.
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

}  // namespace swarmline
