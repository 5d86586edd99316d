// What a fabric calls of CUDA; the entry of libswarmline_cuda.so for it.
#include <array>
#include <cstring>
#include <cuda.h>
#include <dlfcn.h>
#include <string>

#include "engine/fabric/cuda_calls.h"
#include "engine/fabric/device_fabric_entry.h"

namespace swarmline::cuda {
namespace {

static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(IpcHandle));

class CudaStream final : public DeviceStream {
 public:
  explicit CudaStream(cudaStream_t stream) : stream_(stream) {}
  ~CudaStream() override { cudaStreamDestroy(stream_); }
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  void* native() override { return stream_; }
  Result<bool> has_ended() override {
    const cudaError_t status = cudaStreamQuery(stream_);
    if (status == cudaErrorNotReady) {
      cudaGetLastError();
      return false;
    }
    SWARMLINE_TRY(well(status, "copying between devices"));
    return true;
  }

 private:
  cudaStream_t stream_;
};

// The driver's own functions, which the runtime has loaded.
struct Driver {
  decltype(&::cuMemGetAddressRange) address_range = nullptr;
  decltype(&::cuPointerGetAttribute) pointer_attribute = nullptr;
  decltype(&::cuDeviceGet) device_get = nullptr;
  decltype(&::cuDeviceGetUuid) device_uuid = nullptr;

  static Result<Driver> open() {
    void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    Driver driver;
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(::dlsym(library, name));
      return function != nullptr;
    };
    if (library == nullptr || !find(driver.address_range, "cuMemGetAddressRange_v2") ||
        !find(driver.pointer_attribute, "cuPointerGetAttribute") ||
        !find(driver.device_get, "cuDeviceGet") || !find(driver.device_uuid, "cuDeviceGetUuid_v2"))
      return fail(ErrorCode::kDevice,
                  "this machine has no NVIDIA driver that devices can share memory with: "
                  "libcuda.so.1 is not there, or older than CUDA 11.4's");
    return driver;
  }

  // The allocation that `memory` is in.
  Result<MappedMemory> allocation(void* memory) const {
    CUdeviceptr base = 0;
    std::size_t bytes = 0;
    if (address_range(&base, &bytes, reinterpret_cast<CUdeviceptr>(memory)) != CUDA_SUCCESS)
      return fail(ErrorCode::kDevice, "CUDA: memory of the fabric is no device's memory");
    return MappedMemory{reinterpret_cast<DeviceAddress>(base), bytes};
  }
};

class CudaIpc final : public IpcApi {
 public:
  CudaIpc(int device, const Driver& driver) : device_(device), driver_(driver) {}

  Result<void> choose_device() override { return use_device(device_); }
  Result<std::unique_ptr<DeviceStream>> make_stream() override { return make_fabric_stream(); }

  Result<SharedMemory> share(DeviceAddress memory, std::uint64_t bytes) override {
    const auto allocation = driver_.allocation(memory);
    if (!allocation) return std::unexpected(allocation.error());
    unsigned can_be_shared = 0;
    const CUresult asked =
        driver_.pointer_attribute(&can_be_shared, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
                                  reinterpret_cast<CUdeviceptr>(memory));
    const auto offset = static_cast<std::uint64_t>(memory - allocation->memory);
    if (asked != CUDA_SUCCESS || can_be_shared == 0 || bytes > allocation->bytes - offset)
      return fail(ErrorCode::kDevice,
                  "this memory can't be shared between processes: it is of PyTorch's expandable "
                  "segments; take expandable_segments out of PYTORCH_ALLOC_CONF and "
                  "PYTORCH_CUDA_ALLOC_CONF");
    cudaIpcMemHandle_t handle;
    SWARMLINE_TRY(well(cudaIpcGetMemHandle(&handle, allocation->memory), "sharing memory"));
    SharedMemory shared{.offset = offset};
    std::memcpy(shared.handle.data(), &handle, sizeof handle);
    return shared;
  }

  Result<MappedMemory> map(const IpcHandle& shared) override {
    cudaIpcMemHandle_t handle;
    std::memcpy(&handle, shared.data(), sizeof handle);
    void* mapped = nullptr;
    SWARMLINE_TRY(well(cudaIpcOpenMemHandle(&mapped, handle, cudaIpcMemLazyEnablePeerAccess),
                       "mapping another process's memory"));
    // What is mapped is the block that CUDA cut the allocation from, which may begin before it.
    auto* const at = static_cast<DeviceAddress>(mapped);
    const auto block = driver_.allocation(mapped);
    if (!block) {
      unmap(at);
      return std::unexpected(block.error());
    }
    return MappedMemory{at, block->bytes - static_cast<std::uint64_t>(at - block->memory)};
  }

  void unmap(DeviceAddress mapped) override {
    if (cudaIpcCloseMemHandle(mapped) != cudaSuccess) cudaGetLastError();
  }

  Result<void> copy(DeviceStream& stream, DeviceAddress to, DeviceAddress from,
                    std::uint64_t bytes) override {
    return well(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault,
                                static_cast<cudaStream_t>(stream.native())),
                "copying from another process's memory");
  }

 private:
  const int device_;
  const Driver driver_;
};

Result<std::unique_ptr<IpcApi>> make_ipc(int device) {
  const auto driver = Driver::open();
  if (!driver) return std::unexpected(driver.error());
  SWARMLINE_TRY(use_device(device));
  return std::make_unique<CudaIpc>(device, *driver);
}

Result<std::string> uuid(int device) {
  const auto driver = Driver::open();
  if (!driver) return std::unexpected(driver.error());
  SWARMLINE_TRY(use_device(device));
  CUdevice handle = 0;
  CUuuid bytes{};
  if (driver->device_get(&handle, device) != CUDA_SUCCESS ||
      driver->device_uuid(&bytes, handle) != CUDA_SUCCESS)
    return fail(ErrorCode::kDevice, "CUDA does not say which device this is");
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text = "GPU-";
  for (std::size_t i = 0; i < sizeof bytes.bytes; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    const auto byte = static_cast<unsigned char>(bytes.bytes[i]);
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

}  // namespace

Result<void> well(cudaError_t status, std::string_view what) {
  if (status == cudaSuccess) return {};
  cudaGetLastError();  // else the next launch, whoever's it is, reports this error once more
  return fail(ErrorCode::kDevice, "CUDA: " + std::string(what) + ": " + cudaGetErrorString(status));
}

Result<void> use_device(int device) {
  return well(cudaSetDevice(device), "choosing the fabric's device");
}

Result<std::unique_ptr<DeviceStream>> make_fabric_stream() {
  int least = 0, greatest = 0;
  SWARMLINE_TRY(well(cudaDeviceGetStreamPriorityRange(&least, &greatest), "asking for priorities"));
  cudaStream_t stream = nullptr;
  SWARMLINE_TRY(well(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest),
                     "making the fabric's stream"));
  return std::make_unique<CudaStream>(stream);
}

}  // namespace swarmline::cuda

extern "C" {
extern const swarmline::DeviceFabricEntry swarmline_cuda_fabric;
const swarmline::DeviceFabricEntry swarmline_cuda_fabric = {
    .make_nccl = swarmline::cuda::make_nccl,
    .make_ipc = swarmline::cuda::make_ipc,
    .uuid = swarmline::cuda::uuid,
};
}
