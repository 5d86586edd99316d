// What one part of a stage stands on, without the stage: a simulated device, a model without
// libtorch, links to one other peer whose every frame is written down, and a coordinator that only
// listens. Thread: the test's.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "pipeline/protocol/message_kinds.h"
#include "pipeline/stage/common/stage_context.h"
#include "pipeline/stage/common/stage_jobs.h"
#include "sim/cluster/fake_stage_model.h"
#include "sim/doors/sim_device.h"
#include "sim/doors/sim_network.h"
#include "sim/doors/sim_runtime.h"
#include "tests/pipeline/swarm_config.h"

namespace swarmline {

class StageBench {
 public:
  // Stage `stage` of `stages`; the other peer is at `other`.
  StageBench(std::uint32_t stages, std::uint16_t stage, std::uint16_t other,
             const SimDeviceOptions& device = {})
      : StageBench(small_run(stages, 2), stage, other, device) {}
  StageBench(const RunConfig& config, std::uint16_t stage, std::uint16_t other,
             const SimDeviceOptions& device = {})
      : config_(config),
        spec_(*resolve_model(config_, 31)),
        self_{PeerId{1}, StageId{stage}, Incarnation{1}},
        other_{PeerId{2}, StageId{other}, Incarnation{1}},
        device_(runtime_.node(1), device),
        model_(spec_, stage_spec(config, stage)),
        state_(model_, config_),
        context_{.runtime = runtime_.node(1),
                 .queue = queue_,
                 .model = model_,
                 .state = state_,
                 .links = links_,
                 .config = config_,
                 .spec = spec_,
                 .stage = stage_spec(config, stage),
                 .self = self_,
                 .era = Era{0},
                 .recompute = false,
                 .codecs = PhaseCodecs(config_),
                 .notify_coordinator = [this](Frame frame) { told_.push_back(std::move(frame)); },
                 .call_coordinator =
                     [this](Frame frame, std::function<void(Result<Frame>)> reply) {
                       told_.push_back(std::move(frame));
                       replies_.push_back(std::move(reply));
                     },
                 .fail = [this](const Error& error) { failed_ = error.what; }},
        jobs_(context_) {
    const auto address = far_links_.listen({"sim", 0});
    far_links_.set_identity({.term = Term{1}, .era = Era{0}, .run_id = "run", .self = other_});
    links_.set_identity({.term = Term{1}, .era = Era{0}, .run_id = "run", .self = self_});
    others_address_ = to_string(*address);
    links_.set_address(other_, others_address_);
  }

  StageContext& context() { return context_; }
  StageJobs& jobs() { return jobs_; }
  SimDevice& device() { return device_; }
  const RunConfig& config() const { return config_; }
  const ModelSpec& spec() const { return spec_; }
  ParameterState& state() { return state_; }
  const Seat& self() const { return self_; }
  const Seat& other() const { return other_; }
  const std::string& others_address() const { return others_address_; }
  const std::optional<std::string>& failed() const { return failed_; }
  void run(Duration time = std::chrono::milliseconds(50)) { runtime_.run_for(time); }

  // What the other peer and the coordinator got of that kind, once.
  template <typename Message>
  std::vector<Message> sent(MessageKind kind) {
    run();
    return take<Message>(heard_, kind);
  }
  template <typename Message>
  std::vector<Message> told(MessageKind kind) {
    run();
    return take<Message>(told_, kind);
  }
  std::vector<std::function<void(Result<Frame>)>> take_replies() {
    return std::exchange(replies_, {});
  }

 private:
  static StageSpec stage_spec(const RunConfig& config, std::uint16_t stage) {
    const std::uint32_t stages = config.pipeline.stages, layers = config.model.layers;
    return {.stage = StageId{stage},
            .stages = stages,
            .first_layer = layers * stage / stages,
            .last_layer = layers * (stage + 1U) / stages};
  }
  template <typename Message>
  static std::vector<Message> take(std::vector<Frame>& frames, MessageKind kind) {
    std::vector<Message> found;
    std::erase_if(frames, [&](const Frame& frame) {
      if (kind_of(frame) != kind) return false;
      found.push_back(*parse<Message>(frame));
      return true;
    });
    return found;
  }

  RunConfig config_;
  ModelSpec spec_;
  Seat self_, other_;
  std::string others_address_;
  SimRuntime runtime_{1};
  SimNetwork network_{runtime_, {}};
  SimDevice device_;
  DeviceQueue queue_{device_};
  FakeStageModel model_;
  ParameterState state_;
  std::vector<Frame> heard_, told_;
  std::vector<std::function<void(Result<Frame>)>> replies_;
  std::optional<std::string> failed_;
  PeerLinks links_{
      runtime_.node(1),
      network_.node(1),
      std::chrono::seconds(1),
      {.on_frame = [](const Seat&, const Frame&) {}, .on_lost = [](const Seat&, const Error&) {}}};
  PeerLinks far_links_{
      runtime_.node(2),
      network_.node(2),
      std::chrono::seconds(1),
      {.on_frame = [this](const Seat&, Frame frame) { heard_.push_back(std::move(frame)); },
       .on_lost = [](const Seat&, const Error&) {}}};
  StageContext context_;
  StageJobs jobs_;
};

}  // namespace swarmline
