// Sums of fp32 or fp64 values as bytes. For the files of this folder.
//   Thread: any. Errors: none; lengths are equal, and multiples of the dtype's width.
#pragma once

#include "base/bytes.h"
#include "base/dtype.h"

namespace swarmline {

void add_into(DType dtype, BytesView from, MutableBytes to);
void add(DType dtype, BytesView a, BytesView b, MutableBytes sum);

// Parts are added by so many elements at a time, so that a sum stays in the innermost cache.
inline constexpr std::size_t kAddedElements = 4096;

}  // namespace swarmline
