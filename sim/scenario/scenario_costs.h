// What a scenario's model costs to compute and to move, and the small run that stands for it: as
// many layers, stages and microbatches, each tensor a few numbers, charged on the links as what it
// stands for.
//   Compute: FLOPs of the model (model_costs) over the machine's FLOP/s, a third of it forward.
//            Averaging, optimizer step and codecs take no time.
//   Bytes:   activations and gradients in their codecs; averaging by equal slices; state of 12
//            bytes a parameter (6 with 8-bit moments), from one mate.
//   Thread:  one.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "engine/device/device.h"
#include "sim/scenario/scenario.h"

namespace swarmline {

// What the frames of a run carry.
struct ScenarioTraffic {
  double activations = 0, gradients = 0, averaging = 0, state = 0, checkpoints = 0, control = 0;
};

class ScenarioCosts {
 public:
  // kUserMistake: a model or a cut that can't be.
  static Result<ScenarioCosts> make(const Scenario& scenario);

  const RunConfig& stand_in() const { return stand_in_; }
  std::uint32_t stages() const { return static_cast<std::uint32_t>(stages_.size()); }
  double stage_work(StageId stage) const { return stages_.at(stage.value).flops; }
  std::uint64_t parameters() const;
  std::uint64_t boundary_bytes() const { return forward_bytes_; }

  // Of one microbatch; nothing for other jobs.
  std::optional<Duration> service(const MachineKind& machine, StageId stage, JobKind kind) const;
  // Microbatches a second of that machine at that stage.
  double speed(const MachineKind& machine, StageId stage) const;

  // Of frames with a payload. `from_stage`: of the sender. Learns from seals how many average
  // together.
  std::uint64_t charge(StageId from_stage, const Frame& frame);
  // Of the largest stage.
  std::uint64_t checkpoint_bytes() const;
  std::uint64_t state_bytes() const;
  std::uint64_t stand_in_state_bytes() const;
  // As it is delivered: what it carried, into `traffic`.
  void count(StageId from_stage, const Frame& frame, ScenarioTraffic& traffic);
  void on_seal(const Frame& seal);
  void on_membership(const Frame& membership);  // says the lists that seals name

 private:
  struct Stage {
    double flops = 0;                     // of a microbatch, forward and backward
    std::uint64_t elements = 0;           // of the model's own parameters
    std::uint64_t stand_in_elements = 0;  // of the stand-in's
  };
  struct Group {
    std::uint64_t elements = 0, stand_in_elements = 0;
    std::uint32_t members = 1;
  };
  double share_of(std::uint64_t payload_bytes, std::uint64_t elements) const;
  std::uint64_t largest(std::uint64_t Stage::* elements) const;

  RunConfig real_, stand_in_;
  std::vector<Stage> stages_;
  std::map<std::uint32_t, Group> groups_;  // by number: stages, then the shared embedding
  std::uint64_t forward_bytes_ = 0, backward_bytes_ = 0, target_bytes_ = 0;
  std::map<std::uint32_t, std::map<std::uint64_t, std::uint32_t>>
      rosters_;  // by stage and serial: how many serve it
  double averaging_bytes_per_element_ = 0;
  double state_bytes_per_element_ = 0;
  // Parameters and two moments; with a delay the parameters of the version before.
  std::uint64_t state_tensors_ = 3;
};

}  // namespace swarmline
