// Wire buffers to and from tensors in a CUDA device's memory: the bits of codec.h's encode() and
// decode(). Blockwise and 16-bit codecs run on the device, so that only what travels crosses to the
// host; `none` and topk run on the host.
//   Shapes:    n fp32 elements in the device's memory, n >= 0.
//   Ownership: owns memory on the device for the largest wire buffer, and for what the largest
//              measure() needs, so far.
//   Thread:    one at a time, the device's. Work is queued on the default stream, so that it comes
//              after what libtorch computes there; the result is there when a call returns.
//   Errors:    decode: those of codec.h's decode(), every checksum before anything is decoded.
//              All: kDevice with CUDA's sentence.
//   Bounds:    as codec.h.
#pragma once

#include <cstdint>
#include <memory>

#include "compression/codec.h"
#include "compression/measure.h"

namespace swarmline {

class DeviceCodec {
 public:
  virtual ~DeviceCodec() = default;
  virtual Result<Buffer> encode(const CodecSpec& codec, const float* device_values, std::uint64_t n,
                                const kernels::StochasticKey* key = nullptr) = 0;
  virtual Result<void> decode(BytesView wire, float* device_out, std::uint64_t n) = 0;
  // Encodes and decodes as above. The time is by the device's clock from its first command to its
  // last, so that checksums and copies in between count.
  virtual Result<CodecMeasurement> measure(const CodecSpec& codec, const float* device_values,
                                           std::uint64_t n,
                                           const kernels::StochasticKey* key = nullptr) = 0;
};

// On CUDA device number `device`. kDevice: a build without CUDA.
Result<std::unique_ptr<DeviceCodec>> make_device_codec(int device);

}  // namespace swarmline
