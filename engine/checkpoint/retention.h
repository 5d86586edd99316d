// Which checkpoints of a run stay, and removing the others.
//   What:   the newest, those of round steps, those with the lowest held-out loss. Only whole ones
//           count, and the newest whole one always stays. One that is found damaged is set aside as
//           step-N.damaged; of those as many stay as of the newest.
//   Thread: any, one call at a time. Blocking. Errors: kIo.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/checkpoint/checkpoint_folder.h"

namespace swarmline {

struct Retention {
  std::uint32_t newest = 1;                  // so many of the newest; at least 1
  std::uint64_t every_steps = 0;             // and those of its multiples; 0: none
  std::uint32_t best = 0;                    // and so many with the lowest held-out loss
  std::map<std::uint64_t, double> held_out;  // loss by step, of those that were evaluated
};

// Of whole ones, newest first: which stay.
std::vector<bool> kept_by(const Retention& retention,
                          const std::vector<CheckpointEntry>& newest_first);

struct Pruned {
  std::vector<std::string> removed;    // paths, newest first
  std::vector<std::string> set_aside;  // damaged ones, where they were
};
struct Pruning {
  bool only_look = false;  // says what would go, and changes nothing
  // What makes one whole. kContents: every byte of those that stay is read before anything goes.
  Verify verify = Verify::kSizes;
};
Result<Pruned> prune_checkpoints(const std::string& checkpoints_folder, const Retention& retention,
                                 const Pruning& pruning = {});

}  // namespace swarmline
