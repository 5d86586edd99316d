#include "kernels/cuda/cuda_lanes.h"

#include <string>

#include "kernels/cuda/device_memory.h"

namespace swarmline::kernels::cuda {
namespace {

class OnDevice final : public LaneMemory {
 public:
  std::byte* data() const override { return memory.as<std::byte>(); }
  std::size_t size() const override { return memory.size(); }
  DeviceMemory memory;
};

class OnHost final : public LaneMemory {
 public:
  OnHost(void* data, std::size_t bytes) : data_(data), bytes_(bytes) {}
  OnHost(const OnHost&) = delete;
  OnHost& operator=(const OnHost&) = delete;
  ~OnHost() override { cudaFreeHost(data_); }
  std::byte* data() const override { return static_cast<std::byte*>(data_); }
  std::size_t size() const override { return bytes_; }

 private:
  void* const data_;
  const std::size_t bytes_;
};

class CudaEvent final : public LaneEvent {
 public:
  explicit CudaEvent(cudaEvent_t event) : event_(event) {}
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  ~CudaEvent() override { cudaEventDestroy(event_); }
  cudaEvent_t get() const { return event_; }

 private:
  const cudaEvent_t event_;
};

cudaEvent_t event_of(LaneEvent& event) {
  return static_cast<CudaEvent&>(event).get();
}

class CudaLanes final : public Lanes {
 public:
  explicit CudaLanes(int device) : device_(device) {}
  CudaLanes(const CudaLanes&) = delete;
  CudaLanes& operator=(const CudaLanes&) = delete;
  ~CudaLanes() override {
    for (const cudaStream_t stream : {in_, out_})
      if (stream != nullptr) cudaStreamDestroy(stream);
  }
  // They go on beside the default stream, which waits for ordinary ones.
  Result<void> begin() {
    for (cudaStream_t* stream : {&in_, &out_})
      SWARMLINE_TRY(
          checked(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking), "making a stream"));
    return {};
  }

  Result<std::unique_ptr<LaneMemory>> allocate(LaneMemoryKind kind, std::size_t bytes) override;
  Result<std::unique_ptr<LaneEvent>> make_event() override;
  Result<void> copy(Lane lane, std::byte* to, const std::byte* from, std::size_t bytes) override {
    return checked(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_of(lane)),
                   "queuing a copy");
  }
  Result<void> record(Lane lane, LaneEvent& event) override {
    return checked(cudaEventRecord(event_of(event), stream_of(lane)), "recording an event");
  }
  Result<void> wait(Lane lane, LaneEvent& event) override {
    return checked(cudaStreamWaitEvent(stream_of(lane), event_of(event), 0), "queuing an event");
  }
  Result<void> synchronize(LaneEvent& event) override {
    SWARMLINE_TRY(checked(cudaSetDevice(device_), "choosing the device"));
    return checked(cudaEventSynchronize(event_of(event)), "what the device had begun");
  }

 private:
  cudaStream_t stream_of(Lane lane) const {
    if (lane == Lane::kCompute) return kDefaultStream;
    return lane == Lane::kIn ? in_ : out_;
  }

  const int device_;
  cudaStream_t in_ = nullptr;
  cudaStream_t out_ = nullptr;
};

Result<std::unique_ptr<LaneMemory>> CudaLanes::allocate(LaneMemoryKind kind, std::size_t bytes) {
  if (kind == LaneMemoryKind::kDevice) {
    auto memory = std::make_unique<OnDevice>();
    SWARMLINE_TRY(memory->memory.allocate(bytes));
    return memory;
  }
  void* data = nullptr;
  SWARMLINE_TRY(checked(cudaHostAlloc(&data, bytes, cudaHostAllocPortable),
                        "locking " + std::to_string(bytes) + " bytes of the host's memory"));
  return std::make_unique<OnHost>(data, bytes);
}

// A thread that waits for it sleeps.
Result<std::unique_ptr<LaneEvent>> CudaLanes::make_event() {
  cudaEvent_t event = nullptr;
  SWARMLINE_TRY(
      checked(cudaEventCreateWithFlags(&event, cudaEventBlockingSync | cudaEventDisableTiming),
              "making an event"));
  return std::make_unique<CudaEvent>(event);
}

}  // namespace

Result<std::unique_ptr<Lanes>> make_lanes(int device) {
  auto lanes = std::make_unique<CudaLanes>(device);
  SWARMLINE_TRY(lanes->begin());
  return lanes;
}

}  // namespace swarmline::kernels::cuda
