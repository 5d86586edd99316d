// What the groups of a sealed step report: every member of a group must end with the same bits.
// Pure.
//   Errors: kIncompatible when two members' digests differ. Reports of other steps, groups or
//           strangers are ignored.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "engine/base/ids.h"
#include "engine/base/result.h"
#include "pipeline/protocol/messages.pb.h"

namespace swarmline {

class ReduceBoard {
 public:
  void begin(std::uint64_t step, std::map<std::uint32_t, std::vector<Seat>> groups);
  // True when the report counts: a member's first one.
  Result<bool> report(const wire::Reduced& reduced);
  bool active() const { return active_; }
  std::uint64_t step() const { return step_; }
  bool group_done(std::uint32_t group) const;
  bool done() const;
  void end() { active_ = false; }

  double sum_of_squares() const;  // groups in order, each once
  std::vector<wire::GroupDigest> digests() const;
  std::uint64_t reduce_bytes() const { return reduce_bytes_; }
  std::vector<Seat> missing() const;  // members that have not reported

 private:
  struct Group {
    std::vector<Seat> members;
    std::map<Seat, std::uint64_t> digests;
    double sum_of_squares = 0;
  };
  bool active_ = false;
  std::uint64_t step_ = 0;
  std::uint64_t reduce_bytes_ = 0;
  std::map<std::uint32_t, Group> groups_;
};

}  // namespace swarmline
