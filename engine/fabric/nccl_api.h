// What is called of NCCL, and of CUDA for it: so that whoever calls it can be tested without.
//   Ownership: a communicator is its caller's, until it is destroyed or aborted.
//   Thread:    each communicator has one thread, which has chosen the device before. version() any.
//   Errors:    kDevice with NCCL's sentence, or CUDA's.
//   Source:    NCCL 2.28: ncclCommInitRankConfig with blocking = 0 and the calls of the same names.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/device_address.h"
#include "base/result.h"
#include "engine/fabric/device_stream.h"

namespace swarmline {

using NcclId = std::array<std::byte, 128>;  // ncclUniqueId
using NcclCommunicator = void*;             // ncclComm_t

// kUnderWay: ncclInProgress. The communicator's state says when it is not any more; nothing else
// may be asked of it before.
enum class NcclState : std::uint8_t { kDone, kUnderWay };

class NcclApi {
 public:
  virtual ~NcclApi() = default;
  virtual int version() const = 0;  // 22809: 2.28.9
  virtual Result<void> choose_device() = 0;
  virtual Result<std::unique_ptr<DeviceStream>> make_stream() = 0;

  virtual Result<NcclId> make_id() = 0;
  // `made` is one to be aborted, or null, even where it fails.
  virtual Result<NcclState> init(NcclCommunicator& made, const NcclId& id, std::uint32_t rank,
                                 std::uint32_t ranks) = 0;
  virtual Result<NcclState> state(NcclCommunicator communicator) = 0;
  virtual Result<void> group_start() = 0;
  virtual Result<void> send(NcclCommunicator communicator, DeviceStream& stream, std::uint32_t to,
                            DeviceAddress memory, std::uint64_t bytes) = 0;
  virtual Result<void> receive(NcclCommunicator communicator, DeviceStream& stream,
                               std::uint32_t from, DeviceAddress memory, std::uint64_t bytes) = 0;
  // Closes the group also where it fails. What was asked for is in the stream once it is done.
  virtual Result<NcclState> group_end(NcclCommunicator communicator) = 0;
  virtual Result<NcclState> finalize(NcclCommunicator communicator) = 0;
  virtual Result<void> destroy(NcclCommunicator communicator) = 0;
  // What it has in streams ends soon.
  virtual Result<void> abort(NcclCommunicator communicator) = 0;
};

}  // namespace swarmline
