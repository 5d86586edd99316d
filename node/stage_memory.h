// What one peer of a stage holds in memory at its worst moment: the one estimate that `config
// check`, `memory` and `doctor` show.
//   What:    the arenas that pipeline/stage/common/parameter_state.h lists, what microbatches under
//            way keep (engine/model/costs.cc, working_memory.h), their wire buffers, what averaging
//            and a checkpoint take meanwhile, and the shadows that the peer is likely to host.
//   Not in it: the program and libtorch themselves (some 150 MiB of a CPU process; a CUDA context),
//            and states frozen for those that join.
//   Units:   bytes. Thread: any; pure. Errors: none; the config is checked.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/config/run_config.h"
#include "engine/model/model_spec.h"

namespace swarmline {

struct PeerMemory {
  std::uint64_t parameters = 0;   // all versions
  std::uint64_t gradients = 0;    // accumulators, and the averaged gradient
  std::uint64_t optimizer = 0;    // both moments
  std::uint64_t residuals = 0;    // of error feedback
  std::uint64_t activations = 0;  // of microbatches between forward and backward
  std::uint64_t payloads = 0;     // their wire buffers, and tensors decoded ahead
  std::uint64_t working = 0;      // while one is computed
  std::uint64_t libraries = 0;    // of matrix products and the C library, beside tensors
  std::uint64_t averaging = 0;    // chunks under way
  std::uint64_t checkpoint = 0;   // the copy that is being saved
  std::uint64_t shadows = 0;
  std::uint64_t total() const {
    return parameters + gradients + optimizer + residuals + activations + payloads + working +
           libraries + averaging + checkpoint + shadows;
  }
};

struct CudaPeerMemory {
  PeerMemory device, host;
};

// How many microbatches a peer of that stage has under way at most, how many of them between their
// forward and the end of their backward, and how many of these only wait for weight gradients.
struct UnderWay {
  std::uint32_t microbatches = 0;
  std::uint32_t graphs = 0;
  std::uint32_t waiting = 0;
};
UnderWay under_way_at(const RunConfig& config, const StageSpec& stage);

struct MemoryQuestion {
  const RunConfig& config;
  const ModelSpec& model;
  const std::vector<StageSpec>& cut;
  std::uint32_t stage = 0;  // of `cut`
};
PeerMemory peer_memory(const MemoryQuestion& question, bool recompute);
CudaPeerMemory cuda_peer_memory(const MemoryQuestion& question, bool recompute);

// Parameters and both moments, as a checkpoint has them.
std::uint64_t saved_state_bytes(const RunConfig& config, const ParameterLayout& layout);

}  // namespace swarmline
