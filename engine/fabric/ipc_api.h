// What is called of CUDA to read another process's memory: so that whoever calls it can be tested
// without.
//   Ownership: mapped memory stays mapped until unmap(); the process that shared it must not free
//              it before.
//   Thread:    one for each stream, which has chosen the device before. A handle is mapped in other
//              processes alone.
//   Errors:    kDevice with CUDA's sentence.
//   Source:    cudaIpcGetMemHandle, cudaIpcOpenMemHandle, cuMemGetAddressRange.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/device_address.h"
#include "base/result.h"
#include "engine/fabric/device_stream.h"

namespace swarmline {

using IpcHandle = std::array<std::byte, 64>;  // cudaIpcMemHandle_t: of a whole allocation

struct SharedMemory {
  IpcHandle handle{};
  std::uint64_t offset = 0;  // in the allocation
};

struct MappedMemory {
  DeviceAddress memory = nullptr;
  std::uint64_t bytes = 0;  // that may be read from there, the allocation's at least
};

class IpcApi {
 public:
  virtual ~IpcApi() = default;
  virtual Result<void> choose_device() = 0;
  virtual Result<std::unique_ptr<DeviceStream>> make_stream() = 0;
  virtual Result<SharedMemory> share(DeviceAddress memory, std::uint64_t bytes) = 0;
  virtual Result<MappedMemory> map(const IpcHandle& handle) = 0;
  virtual void unmap(DeviceAddress mapped) = 0;
  virtual Result<void> copy(DeviceStream& stream, DeviceAddress to, DeviceAddress from,
                            std::uint64_t bytes) = 0;
};

}  // namespace swarmline
