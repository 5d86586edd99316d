// Wire buffers in a CUDA device's memory, for whatever of compression/ runs there.
//   Stream:    kernels are queued on the default stream.
//   Ownership: places are borrowed.
//   Errors:    kDevice with CUDA's sentence.
#pragma once

#include <cuda_runtime.h>
#include <functional>
#include <memory>

#include "compression/device_codec.h"
#include "compression/wire.h"
#include "kernels/cuda/device_memory.h"
#include "kernels/tensor_lanes.h"

namespace swarmline {

// A wire buffer as it lies in the device's memory: where its header belongs, a flag that kernels
// set, and the tiles. So one copy brings both to the host.
struct WirePlace {
  DeviceAddress at;
  std::uint32_t* non_finite() const { return reinterpret_cast<std::uint32_t*>(at); }
  std::byte* tiles() const { return at + kWireHeaderBytes; }
  Result<void> clear_flag() const {
    return kernels::cuda::checked(
        cudaMemsetAsync(at, 0, kWireHeaderBytes, kernels::cuda::kDefaultStream), "clearing a flag");
  }
};

// Scales (or positions) and codes of every tile, topk of fp32 only; the flag: whether a value is
// not finite. Gaps, checksums and the header are seal_wire()'s.
Result<void> write_tiles(const WirePlace& wire, const WireHeader& header,
                         const DeviceValues& values, const kernels::StochasticKey* key);
// The header was checked, and each tile by check_codes().
Result<void> read_tiles(const WirePlace& wire, const WireHeader& header, const DeviceValues& out);

// The flag as the host reads it.
class WireFlag {
 public:
  explicit WireFlag(kernels::Lanes& lanes) : lanes_(lanes) {}
  Result<void> begin();  // once, before anything else
  // Both wait for all that the compute lane has been given.
  Result<bool> read(const WirePlace& wire);
  Result<void> settle();

 private:
  kernels::Lanes& lanes_;
  std::unique_ptr<kernels::LaneMemory> flag_;
  std::unique_ptr<kernels::LaneEvent> settled_;
};

class CudaWire final : public LeavingWire {
 public:
  CudaWire(std::unique_ptr<kernels::LeavingTensor> tensor, const WireHeader& header)
      : tensor_(std::move(tensor)), header_(header) {}
  Result<void> made() override { return tensor_->made(); }
  Result<Buffer> wait() override {
    auto wire = tensor_->wait();
    number_ = tensor_->number();
    tensor_.reset();  // its place is another's from here on, whatever came of it
    if (!wire || wire->empty()) return wire;
    header_.non_finite = wire->as<std::uint32_t>()[0] != 0;
    seal_wire(header_, wire->bytes());
    return wire;
  }
  double number() const override { return number_; }

 private:
  std::unique_ptr<kernels::LeavingTensor> tensor_;
  WireHeader header_;
  double number_ = 0;
};

// Wire buffers on their way out of a device and into it.
class CudaWires {
 public:
  using Write = std::function<Result<void>(const WirePlace& wire, const WireHeader& header)>;

  // `leaving`: so many leave at once (kernels/tensor_lanes.h).
  CudaWires(kernels::Lanes& lanes, std::size_t leaving)
      : arriving_(lanes), leaving_(lanes, leaving), flag_(lanes) {}
  Result<void> begin() { return flag_.begin(); }  // once, before anything else
  // `write`: write_tiles(), or what makes the same; `number`: as DeviceCodec's.
  Result<std::unique_ptr<LeavingWire>> leave(const CodecSpec& codec, const DeviceValues& values,
                                             bool stochastic, const double* number,
                                             const Write& write);
  // Checked, and there when it returns; of a codec that read_tiles() takes.
  Result<void> arrive(BytesView wire, const WireHeader& header, const DeviceValues& out);

  kernels::ArrivingTensors& arriving() { return arriving_; }
  kernels::LeavingTensors& leaving() { return leaving_; }
  WireFlag& flag() { return flag_; }

 private:
  kernels::ArrivingTensors arriving_;
  kernels::LeavingTensors leaving_;
  WireFlag flag_;
};

}  // namespace swarmline
