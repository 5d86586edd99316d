// What the parts of one peer share once it is seated. Owned by StagePeer; every reference outlives
// the parts. Thread: control thread.
#pragma once

#include <functional>
#include <string>

#include "engine/config/run_config.h"
#include "engine/fabric/fabric.h"
#include "engine/metrics/metrics.h"
#include "engine/model/stage_model.h"
#include "engine/net/frame.h"
#include "engine/runtime/runtime.h"
#include "pipeline/stage/common/device_queue.h"
#include "pipeline/stage/common/parameter_state.h"
#include "pipeline/stage/common/peer_links.h"
#include "pipeline/stage/common/phase_codecs.h"
#include "pipeline/stage/part_folder.h"

namespace swarmline {

struct StageContext {
  Runtime& runtime;
  DeviceQueue& queue;
  StageModel& model;
  ParameterState& state;
  PeerLinks& links;
  const RunConfig& config;
  const ModelSpec& spec;
  StageSpec stage;
  Seat self;
  Era era;
  bool recompute = false;
  PhaseCodecs codecs;
  std::function<void(Frame)> notify_coordinator;
  std::function<void(Frame, std::function<void(Result<Frame>)>)> call_coordinator;
  PartFolder* part_folder = nullptr;  // null: it sees none
  Fabric* fabric = nullptr;           // null: its device reaches no other's memory
  Registry* metrics = nullptr;
  std::function<void(Error)> fail;  // ends this peer with exit code 1 and the sentence

  bool first() const { return stage.has_embedding(); }
  bool last() const { return stage.has_head(); }
  // For the loss, or to know where documents begin.
  bool needs_targets() const { return last() || spec.mask_documents; }
  std::uint64_t activation_elements(std::uint32_t rows) const {
    return std::uint64_t{rows} * spec.sequence * spec.hidden_width();
  }
};

}  // namespace swarmline
