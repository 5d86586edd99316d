// One committed version of a stage's state, and with a delay the one before, frozen for joiners: a
// copy, hashed piece by piece between the jobs of the training.
//   Ownership: owns the copy.
//   Thread:    control thread; copying and hashing are jobs.
//   Errors:    kIncompatible for another version than the one committed here; a copy that fails
//              ends the peer.
//   Bounds:    one version at a time; let go of after knobs().frozen_idle without a request.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/callback_guard.h"
#include "pipeline/stage/common/stage_context.h"
#include "pipeline/stage/common/stage_jobs.h"

namespace swarmline {

class FrozenState {
 public:
  FrozenState(StageContext& context, StageJobs& jobs) : context_(context), jobs_(jobs) {}

  // Tells the coordinator once it is hashed; until then the one before stays.
  Result<void> freeze(std::uint64_t version, Version committed);
  bool holds(std::uint64_t version) const { return here_ && here_->version.value == version; }
  // Somebody asks for it: the bytes of the version that is here.
  BytesView use();
  void silence() { guard_.drop_callbacks(); }
  void check_invariants() const;

 private:
  struct Copy {
    Version version;
    SharedBytes bytes;
    std::vector<std::string> hashes;
  };
  void hash_next(const std::shared_ptr<Copy>& copy);
  void is_here(const std::shared_ptr<Copy>& copy);
  void expire();

  StageContext& context_;
  StageJobs& jobs_;
  std::shared_ptr<Copy> here_;
  Instant used_{};
  CallbackGuard guard_;
};

}  // namespace swarmline
