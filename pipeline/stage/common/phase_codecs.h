// How tensors cross each boundary, phase by phase: what the coordinator said when it opened the
// phase, or else what the config says. Every peer of a boundary sends a phase's tensors in the same
// way, whichever attempt; receivers go by the wire buffer's header.
//   Thread: control thread.
//   Errors: open() returns kCorrupt for codecs or boundaries that cannot be.
//   Bounds: kPhasesKept phases before the newest of their kind.
#pragma once

#include <map>
#include <vector>

#include "base/ids.h"
#include "compression/codec.h"
#include "engine/config/run_config.h"
#include "pipeline/protocol/messages.pb.h"

namespace swarmline {

class PhaseCodecs {
 public:
  static constexpr std::uint64_t kPhasesKept = 4;

  struct Codecs {
    CodecSpec forward, backward;
  };

  explicit PhaseCodecs(const RunConfig& config);
  Result<void> open(const Phase& phase, const wire::OpenPhase& message);
  // As they were when the phase was opened.
  void fill(const Phase& phase, wire::PhaseHoldings& holdings) const;
  // Of the boundary from that stage to the next.
  const Codecs& of(const Phase& phase, std::uint32_t boundary) const;

 private:
  CodecOptions options_;
  std::uint32_t boundaries_;
  Codecs configured_;
  std::map<Phase, std::vector<Codecs>> phases_;
};

}  // namespace swarmline
