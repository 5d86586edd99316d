// Who serves the stages that this peer averages with, as the coordinator says: all of a list, then
// what changes.
//   What:      a seal names the members of its groups by such lists; name_members() writes them
//              into it, as they are when it comes.
//   Thread:    control thread. Pure.
//   Errors:    kCorrupt: a change to a list, or a seal by a list, that this peer does not have.
//   Bounds:    Limits::stage_peers_max members a list; kListsMax lists.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "base/ids.h"
#include "base/result.h"
#include "pipeline/protocol/messages.pb.h"

namespace swarmline {

class Rosters {
 public:
  static constexpr std::size_t kListsMax = 2;  // its own stage, and one that shares an embedding

  Result<void> apply(const wire::Roster& news);
  const std::map<Seat, std::string>& serving(StageId stage) const;  // with their addresses
  // In rank order: stage after stage, by peer.
  Result<void> name_members(wire::Seal& seal) const;

 private:
  struct List {
    std::uint64_t serial = 0;
    std::map<Seat, std::string> serving;
  };
  std::map<StageId, List> lists_;
};

}  // namespace swarmline
