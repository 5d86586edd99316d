// How the members of islands move their sums: past links, where their GPUs let them; and when they
// meet anew for that. Pure.
//   Input:   which GPU each computes on, as it says. A word that is not true costs an attempt, and
//            two of them what a fabric is worth.
//   Meeting: the members of an island meet once for as many averages as go well; after an attempt
//            that did not, or with other members, they meet anew, under another number.
//   Bounds:  an attempt whose fabric failed is tried again over links; after kFabricFailuresMax in
//            a row the group's islands have no fabric until another coordinator leads.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "engine/fabric/fabric.h"
#include "engine/fabric/gpu_identity.h"

namespace swarmline {

// What the members of one island have in common.
FabricKind fabric_of(std::span<const GpuIdentity> island);

class IslandFabrics {
 public:
  static constexpr std::uint32_t kFabricFailuresMax = 2;

  struct Told {
    std::vector<FabricKind> kinds;  // by rank; empty: none has one
    std::uint64_t meeting = 0;
  };
  // `term`: no other coordinator's numbers are its.
  void begin(Term term) { term_ = term; }
  // Of the group's attempt that is sealed now, over so many elements. `speakers`: by rank; not
  // empty.
  Told tell(GroupId group, std::uint64_t elements, const std::vector<Seat>& members,
            const std::vector<std::uint32_t>& speakers, const std::vector<GpuIdentity>& gpus);
  void on_failed(GroupId group);
  // A member of its attempt has the result from elsewhere, or never: it may have gone.
  void on_disturbed(GroupId group) { groups_[group].disturbed = true; }
  void on_committed();
  void on_rollback();

 private:
  struct Group {
    std::vector<Seat> members;
    Told told;
    bool disturbed = false;  // the attempt that was sealed last
    bool went_well = false;  // that one: members are where they met
    bool skips = false;      // the next attempt has none
    std::uint32_t failures = 0;
  };

  Term term_;
  std::uint64_t meetings_ = 0;
  std::map<GroupId, Group> groups_;
};

}  // namespace swarmline
