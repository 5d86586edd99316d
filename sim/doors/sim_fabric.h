// The fabrics of simulated hosts, in virtual time: members of a group that are on one host move
// bytes between their memories, which are this process's. All that moves on a host shares its
// bandwidth; a transfer comes a latency later.
//   Members:   find each other by words alone: rank 0 draws an id and sends it. What is sent is
//              copied when its exchange has its turn, and it moves once both ends have theirs. A
//              member that is dropped, or whose process is killed, moves nothing more; one that is
//              frozen moves what it had begun.
//   Misuse:    a CHECK: what was sent was written to before its exchange had ended (or its group
//              was gone), what was to be received was written to by somebody else, ends that do not
//              mean the same transfers. What is received is no number (all bits set) until then.
//   Ownership: outlives the nodes' logic, as the SimRuntime does. node(n) is the same object each
//              time.
//   Thread:    that of the SimRuntime. Errors, bounds: those of engine/fabric/fabric.h.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "engine/fabric/fabric.h"
#include "sim/doors/sim_runtime.h"

namespace swarmline {

struct SimFabricOptions {
  double bytes_per_second = 50e9;  // of a host
  Duration latency = std::chrono::microseconds(20);
  Duration setup = std::chrono::milliseconds(200);  // once all members have come
  Duration patience = kFabricPatience;
  // Drawn from the seed, each a share in [0, 1]: groups that stall at one of their first exchanges,
  // for ever, and exchanges of a member that fail.
  double stalls = 0;
  double errors = 0;
  // Ends that do not mean the same transfers fail, as what lies beneath a real fabric may; else
  // that is a CHECK. Where a coordinator that tells them so is what is tried.
  bool ends_may_differ = false;
};

// Where a node is. Without a host it has no fabric.
struct SimFabricPlace {
  std::string host;
  std::uint32_t card = 0;  // kNccl: no two members of a group may share one
  bool nccl = true;
  bool ipc = true;
};

class SimFabrics {
 public:
  SimFabrics(SimRuntime& runtime, SimFabricOptions options);
  ~SimFabrics();
  SimFabrics(const SimFabrics&) = delete;
  SimFabrics& operator=(const SimFabrics&) = delete;

  Fabric& node(SimNodeId node);
  void set_place(SimNodeId node, SimFabricPlace place);  // of groups that open from now on

  // Nothing moves any more in the groups that the node has opened so far.
  void stall(SimNodeId node);
  // The node's exchange under way fails, in each of its groups; where none is, the next one.
  void break_exchange(SimNodeId node);

  struct Counters {
    std::uint64_t met = 0;  // groups whose members have all come
    std::uint64_t transfers = 0, bytes = 0;
    std::uint64_t stalled = 0, failed = 0;  // groups, members' exchanges; drawn or asked for
  };
  const Counters& counters() const;

 private:
  struct World;
  struct Meeting;
  class Member;
  class Door;
  std::shared_ptr<World> world_;
  std::map<SimNodeId, std::unique_ptr<Door>> doors_;
};

}  // namespace swarmline
