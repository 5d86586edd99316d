// Groups whose members map each other's memory: they may share a device, or have devices that reach
// each other. Who sends offers a handle and says where; who receives copies, on a stream of its
// own, and says when it has.
//   Ownership: as nccl_fabric.h. What one sends must lie in memory that CUDA can share: of
//              cudaMalloc, as libtorch's is without expandable segments.
//   Thread, errors: as engine/fabric/fabric.h says; offers that do not fit what is received are
//              kDevice. CUDA is called on a thread of the group's own.
//   Dropping:  a copy under way is waited for, FabricThread::kLetGoPatience at most. Who sends does
//              not know whether others still copy: its memory may be read until they have dropped
//              their groups, too.
//   Bounds:    those of fabric.h, ipc_words.h and ipc_member.h. Of a member at most one exchange's
//              offers wait.
#pragma once

#include <memory>

#include "engine/fabric/fabric.h"
#include "engine/fabric/fabric_thread.h"
#include "engine/fabric/ipc_api.h"
#include "engine/runtime/runtime.h"

namespace swarmline {

std::unique_ptr<FabricGroup> make_ipc_group(Runtime& runtime, std::shared_ptr<IpcApi> api,
                                            FabricThreadKeeper& keeper, std::uint32_t rank,
                                            std::uint32_t ranks, Duration patience,
                                            Fabric::SendWord send_word);

}  // namespace swarmline
