// Which phases this peer knows: announced by the coordinator, active (computed here), sealed (may
// become active again when contributions are lost), retired. A message of a phase that is not
// active is held; one of a retired phase is refused. Thread: control thread; pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "engine/base/ids.h"

namespace swarmline {

enum class PhaseStatus : std::uint8_t { kFuture, kActive, kOver };

class PhaseBook {
 public:
  static constexpr std::uint64_t kStepsAheadMax = 2;

  void announce(const Phase& phase, Version version, std::uint32_t microbatches) {
    open_[phase] = {version, microbatches, false};
  }
  void activate(const Phase& phase) {
    if (auto it = open_.find(phase); it != open_.end()) it->second.active = true;
  }
  // Nothing of it is computed until it is activated again.
  void seal(const Phase& phase) {
    if (auto it = open_.find(phase); it != open_.end()) it->second.active = false;
  }
  // Nothing more is computed for it, nor for older phases of its kind.
  void retire(const Phase& phase) {
    open_.erase(phase);
    std::uint64_t& below = over_below_[phase.kind == PhaseKind::kEval];
    below = std::max(below, phase.step + 1);
  }
  PhaseStatus status(const Phase& phase) const {
    if (phase.step < over_below_[phase.kind == PhaseKind::kEval]) return PhaseStatus::kOver;
    auto it = open_.find(phase);
    return it != open_.end() && it->second.active ? PhaseStatus::kActive : PhaseStatus::kFuture;
  }
  Version version(const Phase& phase) const { return open_.at(phase).version; }
  // How many microbatches it has; 0 when it was not announced or is over.
  std::uint32_t microbatches(const Phase& phase) const {
    auto it = open_.find(phase);
    return it == open_.end() ? 0 : it->second.microbatches;
  }
  std::size_t open_phases() const { return open_.size(); }
  std::vector<Phase> open() const {
    std::vector<Phase> phases;
    for (const auto& [phase, entry] : open_) phases.push_back(phase);
    return phases;
  }
  // Evaluations of that version and later ones may be opened as if for the first time.
  void forget_evals(std::uint64_t version) {
    std::erase_if(open_, [](const auto& entry) { return entry.first.kind == PhaseKind::kEval; });
    over_below_[1] = std::min(over_below_[1], version);
  }
  // Nobody can be computing it yet: a step opens when the one before is sealed, which is when the
  // one before that is committed.
  bool beyond_reach(const Phase& phase) const {
    return phase.step > over_below_[0] + kStepsAheadMax;
  }

 private:
  struct Entry {
    Version version;
    std::uint32_t microbatches = 0;
    bool active = false;
  };
  std::map<Phase, Entry> open_;
  std::uint64_t over_below_[2] = {0, 0};
};

}  // namespace swarmline
