// Forward and backward of one stage. libtorch is underneath and stays there.
//   Shapes:    tokens and targets (rows, sequence) int32, targets below 0 are not counted;
//              hidden (rows, sequence, spec.hidden_width()) in the model's dtype, row-major.
//   Ownership: the model owns its parameter arena and the saved graphs; results are owned by the
//              caller; inputs are only read during the call.
//   Thread:    one thread at a time (the device's).
//   Errors:    kDevice with libtorch's sentence; after one from backward() the accumulator may hold
//              a part of the contribution. kNotFound: backward of an attempt without a graph.
//              A wrong size of an input is a broken invariant.
//   Bounds:    one saved graph per attempt between forward() and backward() or release(); the
//              caller admits by retained_bytes().
//   Source:    GPT-2 and Llama shapes; dropout masks as in dropout.h.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/base/bytes.h"
#include "engine/base/ids.h"
#include "engine/base/result.h"
#include "engine/model/model_spec.h"

namespace swarmline {

struct StageModelOptions {
  std::string device = "cpu";  // "cpu" | "cuda" | "cuda:N" (bf16 autocast)
  int threads = 1;             // intra-op threads of this process
  bool recompute = false;      // keep only the stage input, run forward again in backward
};

struct ForwardInput {
  AttemptId id;
  bool train = true;  // dropout on, graph kept for backward(); false: nothing is kept
  std::uint32_t rows = 0;
  BytesView tokens;       // stage 0
  BytesView hidden;       // later stages
  BytesView targets;      // last stage
  double loss_scale = 1;  // last stage: factor of the loss's gradient, 1 / (tokens of the batch)
};

struct ForwardOutput {
  Buffer hidden;        // all but the last stage
  double loss_sum = 0;  // last stage: nats summed over the microbatch's tokens (unscaled)
  bool finite = true;   // false: hidden or loss holds NaN or Inf
};

struct BackwardInput {
  AttemptId id;
  BytesView output_gradient;     // all but the last stage, shape of hidden
  bool weight_gradients = true;  // false: input gradient only (a refused claim, an unmasked stage)
  double scale = 1;              // multiplies the weight gradients (-1 takes a contribution back)
  bool keep_graph = false;       // true: the attempt may be run backward again
  MutableBytes accumulator;      // flat gradients in the stage's layout; weight gradients are added
};

struct BackwardOutput {
  Buffer input_gradient;  // all but stage 0
  bool finite = true;
};

class StageModel {
 public:
  virtual ~StageModel() = default;
  virtual Result<ForwardOutput> forward(const ForwardInput& input) = 0;
  virtual Result<BackwardOutput> backward(const BackwardInput& input) = 0;
  virtual void release(AttemptId id) = 0;  // drops a saved graph; nothing if there is none
  virtual std::size_t saved_graphs() const = 0;
  virtual const ParameterLayout& layout() const = 0;
  // The parameters forward and backward use. Written between jobs only.
  virtual MutableBytes parameters() = 0;
  // Tells the model that parameters() were written (copies to the device, if it is not the CPU).
  virtual void parameters_changed() = 0;
  // The fp32 parameters in a CUDA device's memory, in the layout; null on the CPU and in fp64.
  // Whoever writes them writes the same values to parameters() and says so.
  virtual float* device_parameters() { return nullptr; }
  virtual void device_parameters_changed() {}
};

// Parameters are initialised from the seed. kUserMistake for a device this machine or build does
// not have.
Result<std::unique_ptr<StageModel>> make_stage_model(const ModelSpec& spec, const StageSpec& stage,
                                                     const StageModelOptions& options);
// How many threads libtorch uses in this process, set once at start.
void set_compute_threads(int threads);

}  // namespace swarmline
