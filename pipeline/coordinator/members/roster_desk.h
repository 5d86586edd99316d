// Who serves each stage, as lists that those concerned hold, too: a reader gets all of a list once,
// and what has changed from then on.
//   Names:    a list has a serial, which grows with each change; a reader is the seat that is told.
//   What:     update() writes a list down, news_for() says what that reader lacks of it, and takes
//             it as said: messages to one reader arrive in order, or its seat is over.
//   Errors:   none. Thread: control thread. Pure.
//   Bounds:   a change costs O(members) here and O(1) a reader who has the list before it; any
//             other gets all of it. What readers have: two numbers for each reader and list.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/ids.h"
#include "pipeline/protocol/messages.pb.h"

namespace swarmline {

class RosterDesk {
 public:
  using Addresses = std::map<Seat, std::string>;

  // Served by these from now on. False: as before.
  bool update(StageId stage, const Addresses& serving);
  std::uint64_t serial(StageId stage) const;  // 0: it has never been served
  const Addresses& serving(StageId stage) const;

  // Empty: it has it.
  std::optional<wire::Roster> news_for(const Seat& reader, StageId stage);
  bool has(const Seat& reader, StageId stage) const;  // the list as it is now
  // It has nothing; of a peer: its seats are over, those of shadows that it hosts, too.
  void forget(const Seat& reader) { told_.erase(reader); }
  void forget(PeerId reader);

 private:
  struct List {
    std::uint64_t serial = 0;
    Addresses serving;
    wire::Roster all;     // of this serial
    wire::Roster change;  // from the serial before
  };
  std::map<StageId, List> lists_;
  std::map<Seat, std::map<StageId, std::uint64_t>> told_;  // serials, by reader
};

}  // namespace swarmline
