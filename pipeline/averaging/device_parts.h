// What a round takes out of a device's memory and brings there: parts that are sent leave it
// encoded, and the own slice's values as they are; sums come as they travelled.
//   Shapes:    of a region of the gradient, spec.elements of spec.dtype; chunks by their number
//              (chunks_of(spec)).
//   Ownership: everything is borrowed for the call.
//   Thread:    the device's.
//   Errors:    the device's; decode()'s of a sum.
#pragma once

#include <vector>

#include "compression/device_gradients.h"
#include "engine/collective/butterfly.h"
#include "engine/model/device_optimizer.h"

namespace swarmline {

struct DeviceSide {
  DeviceGradients& gradients;
  DeviceOptimizer& memory;
};

// Of the region, on the host: good in the own slice alone.
struct OwnSlice {
  MutableBytes values;
  MutableBytes residual;  // the current one; empty: no error feedback
};

// What ButterflyAllReduce::take_parts() takes. The next residual of the other slices is complete.
Result<std::vector<SharedBytes>> take_parts(const DeviceSide& device, const ButterflySpec& spec,
                                            DeviceAddress values,
                                            const DeviceGradients::Feedback& feedback,
                                            const OwnSlice& own);
// `sums`: a wire buffer for each chunk.
Result<void> bring_sums(const DeviceSide& device, const ButterflySpec& spec,
                        const std::vector<SharedBytes>& sums, DeviceAddress out);
// What the own slice's sum has lost: `residual` is the region's next one.
Result<void> bring_own_residual(const DeviceSide& device, const ButterflySpec& spec,
                                BytesView residual, DeviceAddress next);

}  // namespace swarmline
