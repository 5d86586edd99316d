// The door inside a host: bytes between the memories of devices, from peer to peer, past the host's
// memory and its sockets.
//   What:      members of a group, ranks 0 to ranks - 1, each a process with a device of its own or
//              a part of one, exchange bytes in turns: the k-th exchange of one member belongs to
//              the k-th of each other; what A sends B there is what B receives from A, in the order
//              in which both name them, of equal length.
//   Words:     small messages by which the ends of a group agree (an id, a handle, "it is there").
//              They travel as the owner sends them, in order from member to member; those of
//              another group, or of an earlier group of the same members, are its owner's to drop.
//   Ownership: memory that a transfer names stays, what is sent unwritten and what is received
//              unread, until the exchange is done or the group is gone.
//   Thread:    control thread; done is posted there, never called from within exchange(). Work that
//              made what is sent has ended before; work that reads what came begins after done.
//   Errors:    done: kDevice with the backend's sentence, or kDeadline after kFabricPatience
//              without an end. The group is of no use after one: exchanges that wait end with it,
//              and later ones at once. on_word(): kCorrupt: it is no word of such a group; nothing
//              has changed. A member that is gone is not noticed sooner than by that: whoever hears
//              of it drops the group.
//   Dropping:  ~FabricGroup gives up what is under way: no done is called any more, and when it
//              returns no memory is touched, here; what others still read of this member is theirs
//              to stop, too: both drop a group when one member does.
//   Bounds:    kFabricRanksMax members; kFabricExchangesMax exchanges that wait;
//              kFabricWordBytesMax bytes a word; kFabricPatience from an exchange's turn to its
//              end.
//   Source:    NCCL 2.28 (ncclSend, ncclRecv, ncclCommAbort); CUDA's inter-process communication.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/bytes.h"
#include "base/device_address.h"
#include "base/result.h"
#include "base/units.h"

namespace swarmline {

inline constexpr std::uint32_t kFabricRanksMax = 16;  // kIslandMembersMax
inline constexpr std::size_t kFabricExchangesMax = 64;
inline constexpr std::size_t kFabricWordBytesMax = 4096;
inline constexpr Duration kFabricPatience = std::chrono::seconds(60);

// How a group's bytes travel. kNccl: each member has a device of its own. kIpc: members map each
// other's memory; they may share a device.
enum class FabricKind : std::uint8_t { kNone = 0, kNccl = 1, kIpc = 2 };

struct FabricTransfer {
  enum class Way : std::uint8_t { kSend, kReceive };
  Way way = Way::kSend;
  std::uint32_t with = 0;  // rank; not the own one
  DeviceAddress memory = nullptr;
  std::uint64_t bytes = 0;  // > 0
};

class FabricGroup {
 public:
  using Done = std::function<void(Result<void>)>;

  virtual ~FabricGroup() = default;
  // After those before it. Without transfers: done when it is its turn.
  virtual void exchange(std::vector<FabricTransfer> transfers, Done done) = 0;
  virtual Result<void> on_word(std::uint32_t from, BytesView word) = 0;
};

class Fabric {
 public:
  using SendWord = std::function<void(std::uint32_t to, Buffer word)>;

  virtual ~Fabric() = default;
  virtual bool offers(FabricKind kind) const = 0;
  // 2 to kFabricRanksMax ranks. All members open it; nobody is waited for here. send_word may be
  // called from within, on the control thread, and is until the group is gone.
  virtual std::unique_ptr<FabricGroup> open(FabricKind kind, std::uint32_t rank,
                                            std::uint32_t ranks, SendWord send_word) = 0;
};

}  // namespace swarmline
