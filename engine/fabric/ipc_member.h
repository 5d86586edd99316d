// What a group's thread does with CUDA's inter-process communication: shares memory, maps that of
// others, copies out of it.
//   Ownership: keeps what it mapped until close(); the api is shared.
//   Thread:    jobs of one FabricThread. Errors: kDevice with a sentence; kStopped: cancelled.
//   Bounds:    kIpcMappedMax allocations mapped at a time; the one used longest ago goes first.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "engine/fabric/fabric.h"
#include "engine/fabric/fabric_thread.h"
#include "engine/fabric/ipc_api.h"
#include "engine/fabric/ipc_words.h"

namespace swarmline {

inline constexpr std::size_t kIpcMappedMax = 64;

class IpcMember {
 public:
  struct Copy {
    IpcOffer from;
    DeviceAddress to = nullptr;
  };

  explicit IpcMember(std::shared_ptr<IpcApi> api) : api_(std::move(api)) {}

  Result<void> prepare();
  Result<std::vector<SharedMemory>> share(const std::vector<FabricTransfer>& transfers);
  // When it returns all copies have ended, whatever it returns.
  Result<void> copy(FabricThread& thread, const std::vector<Copy>& copies);
  void close();

 private:
  struct Mapped {
    IpcHandle handle;
    MappedMemory memory;
  };

  Result<void> begin(FabricThread& thread, const Copy& copy);
  Result<void> wait_for_copies(FabricThread& thread);
  Result<MappedMemory> mapped(FabricThread& thread, const IpcHandle& handle);

  std::shared_ptr<IpcApi> api_;
  std::unique_ptr<DeviceStream> stream_;
  std::deque<Mapped> mapped_;  // the one used last comes last
};

}  // namespace swarmline
