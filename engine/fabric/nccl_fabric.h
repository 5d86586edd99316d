// Groups over NCCL's point-to-point transfers: each member has a device of its own. Rank 0 makes an
// id and sends it as a word; all make a communicator of it, and each exchange is one group of
// ncclSend and ncclRecv.
//   Ownership: the api is shared with threads that still close communicators; the keeper outlives
//              the group.
//   Thread, errors: as engine/fabric/fabric.h says. NCCL is called on a thread of the group's own.
//   Dropping:  an exchange under way is aborted, which is waited for, FabricThread::kLetGoPatience
//              at most. A communicator that has nothing to do is finalized and destroyed on its
//              thread, later; one that takes more than kNcclFinalizePatience is aborted. An id
//              that did not bring all together is ended there, too, within the same time.
//   Bounds:    those of fabric.h; `patience` stands for kFabricPatience.
#pragma once

#include <memory>

#include "engine/fabric/fabric.h"
#include "engine/fabric/fabric_thread.h"
#include "engine/fabric/nccl_api.h"
#include "engine/runtime/runtime.h"

namespace swarmline {

inline constexpr Duration kNcclFinalizePatience = std::chrono::seconds(2);

std::unique_ptr<FabricGroup> make_nccl_group(Runtime& runtime, std::shared_ptr<NcclApi> api,
                                             FabricThreadKeeper& keeper, std::uint32_t rank,
                                             std::uint32_t ranks, Duration patience,
                                             Fabric::SendWord send_word);

}  // namespace swarmline
