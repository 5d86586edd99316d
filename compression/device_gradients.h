// What averaging does with gradients in a device's memory: parts leave it as wire buffers, sums
// come as such, so that only what travels crosses to the host. The bits are those of codec.h's
// functions on the host.
//   Shapes:    n elements of one dtype, the gradients': fp32 on CUDA.
//   Ownership: owns its rings (kernels/tensor_lanes.h) and what a feedback of the largest n needs.
//   Thread:    one at a time, the device's; what leaves is waited for or dropped on any. Work comes
//              after what libtorch has queued on the default stream before.
//   Errors:    decode(): those of codec.h's decode(). All: kDevice with the device's sentence.
//   Bounds:    kLeavingParts parts that nobody has waited for or dropped; a further one waits for
//              that, so that one thread begins no more than so many ahead.
#pragma once

#include <cstdint>
#include <memory>

#include "base/device_address.h"
#include "compression/codec.h"
#include "compression/device_codec.h"

namespace swarmline {

inline constexpr std::size_t kLeavingParts = 2;

class DeviceGradients {
 public:
  // Both null: no feedback. `next` may be `current` itself.
  struct Feedback {
    DeviceAddress current = nullptr;
    DeviceAddress next = nullptr;
  };

  virtual ~DeviceGradients() = default;
  // The others are encoded on the host, from values that were fetched.
  virtual bool encodes(const CodecSpec& codec) const = 0;
  // encode(), or encode_with_feedback(); only what encodes(). The values may be written, and
  // feedback.next is complete, when it was waited for.
  virtual Result<std::unique_ptr<LeavingWire>> begin_encode(const CodecSpec& codec,
                                                            DeviceAddress values, std::uint64_t n,
                                                            const Feedback& feedback,
                                                            const kernels::StochasticKey* key) = 0;
  // Of any codec; all of it is there when it returns.
  virtual Result<void> decode(BytesView wire, DeviceAddress out, std::uint64_t n) = 0;
  // sum[i] = a[i] + b[i], each rounded once; `sum` may be one of them. There when it returns.
  virtual Result<void> add(DeviceAddress a, DeviceAddress b, DeviceAddress sum,
                           std::uint64_t n) = 0;
};

// On CUDA device number `device`. kDevice: a build without CUDA.
Result<std::unique_ptr<DeviceGradients>> make_device_gradients(int device);

}  // namespace swarmline
