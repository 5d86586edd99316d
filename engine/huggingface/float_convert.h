// Floating-point values from one type to another, rounded to nearest even.
//   Types:  fp32, fp64, fp16 and bf16 on either side (CHECKed). Alignment: any.
//   Thread: pure.
#pragma once

#include <cstddef>

#include "base/bytes.h"
#include "base/dtype.h"

namespace swarmline {

bool is_float(DType dtype);
// `to` has room for as many elements as `from` holds.
void convert_floats(DType from_type, BytesView from, DType to_type, MutableBytes to);

}  // namespace swarmline
