// How one peer's gradients of parameters travel inside its stage: codec, stochastic draws, and what
// error feedback carries from one step to the next.
//   Invariant: a residual becomes current only by a commit. A round that is tried again starts from
//              the same one; a skipped step leaves it. It dies with its peer, so that with feedback
//              a run that loses a peer loses that peer's residual.
//   Ownership: owns both residuals, each the size of the stage's gradient, where feedback is on.
//   Thread:    control thread.
#pragma once

#include "engine/config/run_config.h"
#include "pipeline/averaging/stage_averager.h"

namespace swarmline {

// Whether averaging has error feedback: it is asked for, or the codec can't be without.
bool keeps_residuals(const RunConfig& config);

class AveragingCodecs {
 public:
  // `gradient_bytes`: of the stage's whole gradient.
  AveragingCodecs(const RunConfig& config, std::uint64_t gradient_bytes);

  // Codecs, key and residual of a round over the gradient from byte `first` on; its key, ranks,
  // dtype and input are set.
  void set_up(StageAverager::Round& round, std::uint64_t first);
  void on_commit(bool skipped);
  const CodecSpec& codec() const { return codec_; }
  bool feeds_back() const { return feedback_; }
  // Where rounds take their values from a device, the residuals are there, in two arenas in turn,
  // and here of the own slice alone.
  std::uint64_t turn() const { return turn_; }
  MutableBytes residual() { return current_.bytes(); }

 private:
  const RunConfig& config_;
  CodecSpec codec_;
  bool feedback_;
  Buffer current_, next_;
  std::uint64_t turn_ = 0;  // so many times they took each other's place
};

}  // namespace swarmline
