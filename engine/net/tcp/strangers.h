// The connections of a process whose other ends have not said who they are: how many there may be,
// in all and from one address, and what they may hold of its memory. Pure.
//   What:      says who has to go when there are too many: of an address with too many, or else of
//              the one with the most, the one that has said nothing for longest. So who opens many
//              crowds out itself, and who has just come can say who it is.
//   Thread:    one thread at a time.
//   Bounds:    Bounds::connections_max, of_host_max; held and unsent bytes of all.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/limits.h"
#include "base/units.h"

namespace swarmline {

class Strangers {
 public:
  struct Bounds {
    std::size_t connections_max = Limits::strangers_max;
    std::size_t of_host_max = Limits::strangers_of_host_max;
    std::uint64_t held_bytes_max = Limits::strangers_held_bytes_max;
    std::uint64_t unsent_bytes_max = Limits::strangers_unsent_bytes_max;
    Duration patience = Limits::stranger_patience;
  };
  using Id = std::uint64_t;

  explicit Strangers(const Bounds& bounds) : bounds_(bounds) {}

  // A new one, from that address (without its port). Its number, and who has to go for it.
  struct Added {
    Id id = 0;
    std::optional<Id> crowded_out;
  };
  Added add(const std::string& host, Instant now);
  // It has sent a whole frame.
  void heard(Id id, Instant now);
  // It is none any more, or has gone.
  void remove(Id id);
  // What it makes this process hold now. False: all of them hold too much, and it may not.
  bool holds(Id id, std::uint64_t received_bytes, std::uint64_t unsent_bytes);
  Instant deadline(Id id) const { return entries_.at(id).heard + bounds_.patience; }
  std::size_t count() const { return entries_.size(); }
  void check_invariants() const;

 private:
  struct Entry {
    std::string host;
    Instant heard;
    std::uint64_t received_bytes = 0, unsent_bytes = 0;
  };
  using Host = std::set<std::pair<Instant, Id>>;  // the longest silent first
  std::optional<Id> too_many(const std::string& newest) const;

  const Bounds bounds_;
  std::map<Id, Entry> entries_;
  std::map<std::string, Host> hosts_;
  std::uint64_t held_bytes_ = 0, unsent_bytes_ = 0;
  Id last_ = 0;
};

}  // namespace swarmline
