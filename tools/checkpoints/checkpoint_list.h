// What checkpoints a run has, for people and programs.
//   Thread: blocking. Errors: kNotFound, kUserMistake, kIo.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace swarmline {

inline constexpr int kCheckpointListFormat = 1;

struct ListedCheckpoint {
  std::string name;  // "step-100"
  std::string path;
  std::uint64_t era = 0;
  std::uint64_t step = 0;
  std::uint64_t bytes = 0;  // of its files
  double wall_seconds = 0;  // when it was written, since 1970
  std::string damage;       // what is wrong with it; empty: whole, by the sizes of its files
  bool set_aside = false;   // found damaged before
  bool optimizer_state = false;
  std::optional<double> loss;      // of the step that made it
  std::optional<double> held_out;  // of its version
};

// `folder`: a run folder. Newest last.
Result<std::vector<ListedCheckpoint>> list_run_checkpoints(const std::string& folder);
std::string to_text(const std::vector<ListedCheckpoint>& checkpoints, double now_wall_seconds);
std::string to_json(const std::vector<ListedCheckpoint>& checkpoints);

struct VerifiedCheckpoint {
  std::string path;
  std::uint64_t bytes = 0;
  std::string damage;  // empty: every byte is what was written
};
// A run folder, all of its checkpoints, or one checkpoints/step-N folder.
Result<std::vector<VerifiedCheckpoint>> verify_checkpoints(const std::string& path);

}  // namespace swarmline
