// Wire buffers to and from tensors in a CUDA device's memory: the bits of codec.h's encode() and
// decode(). Only what travels crosses to the host; topk runs there.
//   Shapes:    fp32 or bf16 elements in the device's memory, as many as DeviceValues says, >= 0.
//   Ownership: owns memory on the device and page-locked memory for five wire buffers of the
//              largest size so far (kernels/tensor_lanes.h), and for what the largest measure()
//              needs.
//   Thread:    one at a time, the device's; what leaves is waited for on any. Work is queued on the
//              default stream, so that it comes after what libtorch computes there. Tensors cross
//              beside that. The result is there when a call returns, of begin_encode() when it was
//              waited for.
//   Errors:    decode: those of codec.h's decode(), every checksum before anything is decoded.
//              All: kDevice with CUDA's sentence.
//   Bounds:    as codec.h.
#pragma once

#include <cstdint>
#include <memory>

#include "base/device_address.h"
#include "compression/codec.h"
#include "compression/measure.h"

namespace swarmline {

// A wire buffer, or nothing, with a number that was computed: on their way to the host.
class LeavingWire {
 public:
  virtual ~LeavingWire() = default;
  virtual Result<void> made() = 0;    // waits until the device has made it; before wait()
  virtual Result<Buffer> wait() = 0;  // once; before the codec is gone
  virtual double number() const = 0;  // after that
};

struct DeviceValues {
  DeviceAddress at = nullptr;
  std::uint64_t elements = 0;
  DType dtype = DType::kF32;  // or kBF16
};

class DeviceCodec {
 public:
  virtual ~DeviceCodec() = default;
  // encode(), of which the device does the rest by itself. `number`: in the device's memory, null:
  // none. begin_number(): nothing else leaves; without a number it tells when all that was queued
  // before it is done.
  virtual Result<std::unique_ptr<LeavingWire>> begin_encode(const CodecSpec& codec,
                                                            const DeviceValues& values,
                                                            const kernels::StochasticKey* key,
                                                            const double* number) = 0;
  virtual Result<std::unique_ptr<LeavingWire>> begin_number(const double* number) = 0;
  virtual Result<Buffer> encode(const CodecSpec& codec, const DeviceValues& values,
                                const kernels::StochasticKey* key = nullptr) = 0;
  virtual Result<void> decode(BytesView wire, const DeviceValues& out) = 0;
  // Bytes as they are, for what is queued from now on; nothing is waited for.
  virtual Result<void> bring(BytesView bytes, DeviceAddress device_out) = 0;
  // Encodes and decodes as above. The time is by the device's clock from its first command to its
  // last, so that checksums and copies in between count.
  virtual Result<CodecMeasurement> measure(const CodecSpec& codec, const DeviceValues& values,
                                           const kernels::StochasticKey* key = nullptr) = 0;
};

// On CUDA device number `device`. kDevice: a build without CUDA.
Result<std::unique_ptr<DeviceCodec>> make_device_codec(int device);

}  // namespace swarmline
