// A safetensors file tensor by tensor, so that no more than one of them is in memory.
//   Thread: the caller's; blocking. Errors: those of `give`.
//   Bounds: one tensor at a time.
#pragma once

#include <cstdint>
#include <functional>

#include "base/bytes.h"
#include "base/result.h"
#include "engine/checkpoint/safetensors.h"

namespace swarmline {

// The bytes of a tensor of the layout.
using FillTensor = std::function<void(const TensorInfo& tensor, MutableBytes out)>;
// Takes the next bytes of the file, front to back.
using GiveBytes = std::function<Result<void>(std::uint64_t offset, BytesView bytes)>;

Result<void> stream_safetensors(const SafetensorsLayout& layout, const FillTensor& fill,
                                const GiveBytes& give);

}  // namespace swarmline
