// Which phases this peer knows: announced by the coordinator, active (computed here), sealed (may
// become active again when contributions are lost), retired. A phase that is opened again has a
// higher epoch, and so has all that is leased from then on: a message of an epoch that this peer
// has not heard of, or of a phase that is not active, is held; one of a retired phase is refused,
// and one of an epoch that was sealed, since the step had all of it then.
//   Ownership: PhaseRunner writes it, and CommitQueue what was stepped to; the other parts read it.
//   Thread:    control thread; pure.
//   Bounds:    the owner opens a few phases at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "base/ids.h"

namespace swarmline {

enum class PhaseStatus : std::uint8_t { kFuture, kActive, kOver };

class PhaseBook {
 public:
  static constexpr std::uint64_t kStepsAheadMax = 2;

  void announce(const Phase& phase, Version version, std::uint32_t microbatches, PhaseEpoch epoch) {
    open_[phase] = {.version = version, .microbatches = microbatches, .epoch = epoch};
  }
  void reopen(const Phase& phase, PhaseEpoch epoch) { open_.at(phase).epoch = epoch; }
  void activate(const Phase& phase) {
    if (auto it = open_.find(phase); it != open_.end()) it->second.active = true;
  }
  // Nothing of it is computed until it is activated again, and nothing of this epoch ever.
  void seal(const Phase& phase) {
    auto it = open_.find(phase);
    if (it == open_.end()) return;
    it->second.active = false;
    it->second.over_below = PhaseEpoch{it->second.epoch.value + 1};
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
  // Of what was leased in that epoch.
  PhaseStatus status(const Phase& phase, PhaseEpoch epoch) const {
    if (auto it = open_.find(phase); it != open_.end()) {
      if (epoch < it->second.over_below) return PhaseStatus::kOver;
      if (epoch > it->second.epoch) return PhaseStatus::kFuture;
    }
    return status(phase);
  }
  Version version(const Phase& phase) const { return open_.at(phase).version; }
  // How many microbatches it has; 0 when it was not announced or is over.
  std::uint32_t microbatches(const Phase& phase) const {
    auto it = open_.find(phase);
    return it == open_.end() ? 0 : it->second.microbatches;
  }
  // The newest version that this peer has stepped to.
  void on_stepped(Version version) { stepped_ = version; }
  Version stepped() const { return stepped_; }
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
  // Nobody can be computing it yet: a step opens at the earliest when the one before the last is
  // committed.
  bool beyond_reach(const Phase& phase) const {
    return phase.step > over_below_[0] + kStepsAheadMax;
  }

 private:
  struct Entry {
    Version version;
    std::uint32_t microbatches = 0;
    bool active = false;
    PhaseEpoch epoch;
    PhaseEpoch over_below;
  };
  std::map<Phase, Entry> open_;
  std::uint64_t over_below_[2] = {0, 0};
  Version stepped_;
};

}  // namespace swarmline
