// The versions of a stage's parameters that live at one time, its gradient accumulators and its
// optimizer.
//
//   Versions:  `committed` is the newest. delay 0: step t computes on it, in one arena; a commit
//              changes it in place. delay 1: step t+1 computes on version t while step t, on
//              version t-1, is averaged into t+1; a step that lost contributions after it was
//              sealed is computed again, and two steps are open at once, so three arenas:
//              committed, the one the model computes on, and the other version in use. use()
//              exchanges the last two, which copies nothing.
//   Gradients: one accumulator a step (two in turn with delay 1): made and cleared by begin(). Its
//              sums are where the model computes, in its bytes from collect() on, with those of
//              others that were adopted, read there by the averaging until the commit; `reduced` is
//              where the average is written. Reduction is out of place.
//   Optimizer: on a CUDA stage, state and step are in the device's memory, or in the host's with
//              optimizer.state_memory = "host" and with Muon. Where they are in the device's, so
//              are the committed parameters and the averaged gradient: that goes there as soon as
//              it is complete. Parameters and moments come to the host for who asks: save() and
//              committed_parameters().
//   Saved:     a version's state as mates and checkpoints take it: committed parameters, first
//              moment, second moment, each as it lies in memory; with a delay the parameters of the
//              version before behind them (saved_state.h). What is before those is the committed
//              state alone.
//   Thread:    functions marked [device] run in device jobs only; the rest are plain reads on the
//              control thread.
//   Memory:    what all of that takes of a device's memory is taken by take_memory(), when the
//              stage gets its seat; without it, when it is asked for first.
//   Errors:    kDevice, of the device's optimizer; kOutOfMemory of what takes memory there. use():
//              kIncompatible for a version that is not here; load(): for bytes of another length.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/result.h"
#include "engine/config/run_config.h"
#include "engine/model/stage_model.h"
#include "engine/optimizer/flat_optimizer.h"

namespace swarmline {

// Of one group's averaged gradient.
struct ReducedSummary {
  std::uint64_t digest = 0;  // kernels::digest()
  double sum_of_squares = 0;
};
class ParameterState {
 public:
  ParameterState(StageModel& model, const RunConfig& config);

  // [device] All that it will hold of a device's memory (seat_memory.h); `residuals`: of error
  // feedback, too. Why it can't be: then the stage can't be trained here.
  Result<void> take_memory(bool residuals);
  MutableBytes accumulator(std::uint64_t step) { return accumulators_[slot(step)].bytes(); }
  MutableBytes reduced() { return reduced_.bytes(); }
  // [device] In the host's memory, until the next apply().
  Result<BytesView> committed_parameters();
  Version committed_version() const { return committed_version_; }  // [device]
  const ParameterLayout& layout() const { return model_.layout(); }

  void begin(std::uint64_t step);            // [device] clears its accumulator
  Result<void> collect(std::uint64_t step);  // [device] brings the sums into the accumulator
  bool needs_collect(std::uint64_t step) const {
    return model_.keeps_sums() || !adopted_[slot(step)].empty();
  }
  // [device] What another member has added of the step counts as added here: collect() adds it.
  void adopt_sums(std::uint64_t step, SharedBytes sums);
  Result<void> use(Version version);  // [device] compute on that version from now on
  // [device] Where the step's sums are in the memory of gradients(), those that were adopted with
  // them, until the next addition.
  Result<DeviceAddress> sums_there(std::uint64_t step);
  // [device] So many bytes of `reduced`, from `first` on, are the average of a group: what members
  // compare of it, and what the norm is made of. Before apply() of whatever was written there.
  // `bring`: brings it to where it belongs in the device's memory; empty: a copy of `reduced` goes.
  using Bring = std::function<Result<void>(DeviceAddress there)>;
  Result<ReducedSummary> take_reduced(std::uint64_t first, std::uint64_t bytes,
                                      const Bring& bring = {});
  // [device] optimizer step of `reduced` on the committed parameters; skipped: only the version.
  Result<void> apply(const StepScalars& scalars, bool skipped);
  Result<std::uint64_t> digest();  // [device] of committed parameters and optimizer state
  Result<Buffer> save();           // [device] a copy of all versions in use
  // [device] So many bytes of that, from `first` on.
  Result<Buffer> save(std::uint64_t first, std::uint64_t bytes);
  // [device] The committed state from now on, saved, or without the version before: then that comes
  // with the next commit.
  Result<void> load(Version version, BytesView state);
  // [device] The committed parameters from now on, without the rest of the state: it computes, and
  // can't step before load().
  void load_parameters(Version version, BytesView parameters);
  // [device] Takes over all versions, the optimizer's state and `reduced` of another one of the
  // same stage, which is of no use afterwards.
  Result<void> adopt(ParameterState& from);
  // Null: sums and average are the host's. Else both are in a device's memory, and the average
  // comes to the host as well, for mates. Never changes; any thread may ask, functions are
  // [device].
  DeviceGradients* gradients() const { return gradients_.get(); }
  // Null: the step is made on the host.
  DeviceOptimizer* device() const { return optimizer_ ? optimizer_->device() : nullptr; }
  std::uint64_t parameter_bytes() const { return layout().bytes(); }
  std::uint64_t committed_state_bytes() const;
  std::uint64_t saved_bytes() const;

 private:
  void lock_pages(Buffer& buffer);
  MutableBytes made_accumulator(std::uint64_t step);
  Result<void> add_adopted(std::uint64_t step, DeviceAddress sums);
  Result<void> step(const StepScalars& scalars);
  // Where a device has the committed parameters.
  Result<DeviceAddress> committed_there();
  // With a delay: where the step reads them, after they were written on the host.
  Result<void> bring_committed();
  Result<void> copy_committed();  // into what the model computes on
  // Both sides of the model's arenas are the same from then on.
  Result<void> collect_versions();
  Result<std::vector<BytesView>> committed_state();
  Result<BytesView> version_before();
  MutableBytes committed_bytes();
  std::size_t slot(std::uint64_t step) const { return delayed_ ? step % 2 : 0; }

  StageModel& model_;
  bool delayed_;
  Result<FlatOptimizer> optimizer_;  // or why there is none: apply() and digest() say it
  std::unique_ptr<DeviceGradients> gradients_;
  Version committed_version_;
  Version computing_version_;             // in the model's arena
  std::optional<Version> other_version_;  // in the model's other arena
  Buffer committed_;                 // delay 1 only; delay 0 commits into the model's own arena
  bool committed_is_older_ = false;  // than the device's
  Buffer accumulators_[2];
  std::vector<SharedBytes> adopted_[2];  // not in those yet; where the model keeps sums, ever
  Buffer reduced_;
  std::map<std::uint64_t, std::uint64_t> reduced_there_;  // first and bytes that the device has
  std::vector<PageLock> pages_;  // of those above that a device copies from or to
};

}  // namespace swarmline
