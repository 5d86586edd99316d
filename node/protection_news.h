// Says once that one peer alone holds a stage's state, and once that no stage is so any more: for
// whoever has no screen, which shows it all the while.
//   Thread: one. Ownership: values.
#pragma once

#include <optional>
#include <string>

#include "pipeline/protocol/run_status.h"

namespace swarmline {

class ProtectionNews {
 public:
  // A line about the run as it is now; nullopt: nothing has changed, or it doesn't train.
  std::optional<std::string> of(const RunStatus& status);

 private:
  bool unprotected_ = false;
};

}  // namespace swarmline
