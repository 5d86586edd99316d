// Seals: what each member's accumulator must hold, and whom it averages with.
//   What:      a group's members are named by the lists of those who serve its stages, where these
//              are its members and the receiver has the lists; else one by one.
//   Ownership: what it is made with outlives it. Thread: control thread.
//   Errors:    whoever owns microbatches of a group and is no member aborts: they would be in no
//              sum.
//   Islands:   where the config wants them, of members that say they are on one host (islands.h),
//              with a fabric where their GPUs have one (island_fabrics.h).
//   Slices:    where those who speak say what bandwidth they have, cut by it (uneven_slices.h).
//   Bounds:    one pass over a stage's cells; a message for each member, which is as long as what
//              it owns, and, where slices are uneven or there are islands, a number for each member
//              of its groups.
#pragma once

#include <optional>
#include <vector>

#include "base/ids.h"
#include "pipeline/coordinator/members/membership.h"
#include "pipeline/coordinator/members/outbox.h"
#include "pipeline/coordinator/run/run_shape.h"
#include "pipeline/coordinator/steps/island_fabrics.h"
#include "pipeline/coordinator/steps/reduce_board.h"
#include "pipeline/ledger/ledger.h"

namespace swarmline {

class SealWriter {
 public:
  struct Needs {
    const RunShape& shape;
    const Membership& members;
    const Ledger& ledger;
    Outbox& outbox;
  };
  explicit SealWriter(const Needs& needs) : in_(needs) {}

  IslandFabrics& fabrics() { return fabrics_; }
  // To each member of these groups, as the board has them.
  void send(const ReduceBoard& board, const Phase& phase, const std::vector<GroupId>& groups);

 private:
  struct Forms {              // in which a group is told
    wire::ReduceGroup alike;  // in all of them
    std::optional<wire::ReduceGroup> by_lists, by_name;
  };
  const wire::ReduceGroup& form_for(const Seat& seat, const ReduceBoard& board, GroupId group,
                                    Forms& forms) const;
  void check_owners(const ReduceBoard& board, const Phase& phase, GroupId group) const;
  wire::ReduceGroup group_alike(const ReduceBoard& board, GroupId id);
  struct Told {
    std::vector<std::uint32_t> speakers;  // by rank; empty: each for itself
    IslandFabrics::Told fabrics;
  };
  Told islands(GroupId id, const ReduceBoard::Members& members);
  bool may_have_fabrics() const;
  wire::ReduceGroup group_by_name(const ReduceBoard::Members& members,
                                  const wire::ReduceGroup& alike) const;
  std::optional<wire::ReduceGroup> group_by_lists(const ReduceBoard::Members& members,
                                                  const wire::ReduceGroup& alike) const;
  bool has_lists(const Seat& seat, GroupId id) const;

  Needs in_;
  IslandFabrics fabrics_;
};

}  // namespace swarmline
