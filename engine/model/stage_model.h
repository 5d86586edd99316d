// Forward and backward of one stage. libtorch is underneath and stays there.
//   Shapes:    tokens and targets (rows, sequence) int32, targets below 0 are not counted;
//              hidden (rows, sequence, spec.hidden_width()) of the spec's stream_dtype(),
//              row-major; or as the wire buffer of as many elements, in and out, where
//              takes_wire().
//   Ownership: the model owns its parameter arena and the saved graphs; results are owned by the
//              caller; inputs are only read during the call.
//   Thread:    one thread at a time (the device's).
//   Errors:    kDevice with libtorch's sentence; after one from backward() or
//              add_weight_gradients() the accumulator may hold a part of the contribution.
//              kDeviceLost: so will every call that follows. kOutOfMemory, of forward() and
//              backward(): nothing was added; it may be asked again when others have been released.
//              A backward has given up its graph then, and computes it again. kNotFound: backward
//              of an attempt without a graph. decode()'s of a wire buffer, before anything is
//              added: the graph stays. A wrong size of an input is a broken invariant.
//   Bounds:    kAccumulatorsMax accumulators; one saved graph per attempt between forward() and
//              backward() or release(); the caller admits by retained_bytes(), which holds for
//              gradients added later, too.
//   Source:    GPT-2 and Llama shapes; dropout masks as in dropout.h.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/bytes.h"
#include "base/device_address.h"
#include "base/ids.h"
#include "base/result.h"
#include "compression/device_gradients.h"
#include "compression/measure.h"
#include "engine/model/device_optimizer.h"
#include "engine/model/model_spec.h"
#include "engine/model/page_lock.h"

namespace swarmline {

inline constexpr std::size_t kAccumulatorsMax = 3;  // of two steps, and one to compare with

struct StageModelOptions {
  std::string device = "cpu";  // "cpu" | "cuda" | "cuda:N" (bf16 autocast)
  int threads = 1;             // intra-op threads of this process
  bool recompute = false;      // keep only the stage input, run forward again in backward
};

// How an output leaves as a wire buffer.
struct WireRequest {
  CodecSpec codec;
  std::optional<kernels::StochasticKey> key;  // none: rounded to nearest
  std::size_t sample_elements = 0;            // of its beginning, to be kept as a sample, too
};

struct ForwardInput {
  AttemptId id;
  bool train = true;  // dropout on, graph kept for backward(); false: nothing is kept
  std::uint32_t rows = 0;
  BytesView tokens;         // stage 0
  BytesView hidden;         // later stages
  BytesView hidden_wire;    // instead of hidden
  BytesView targets;        // last stage; of a spec that masks documents, every stage
  double loss_scale = 1;    // last stage: factor of the loss's gradient, 1 / (tokens of the batch)
  bool give_hidden = true;  // false: only the graph is wanted
  std::optional<WireRequest> as_wire;  // none: hidden leaves as values
};

struct ForwardOutput {
  Buffer hidden;           // all but the last stage: values, or the wire buffer that was asked for
  TensorSamplePtr sample;  // that was asked for with that; needs nothing of the model
  double loss_sum = 0;     // last stage: nats summed over the microbatch's tokens (unscaled)
  bool finite = true;      // false: hidden or loss holds NaN or Inf
};

struct BackwardInput {
  AttemptId id;
  BytesView output_gradient;       // all but the last stage, shape of hidden
  BytesView output_gradient_wire;  // instead of output_gradient
  bool weight_gradients = true;  // false: input gradient only (a refused claim, an unmasked stage)
  double scale = 1;              // multiplies the weight gradients (-1 takes a contribution back)
  bool keep_graph = false;       // true: the attempt may be run backward again
  // Weight gradients are wanted, but add_weight_gradients() adds them: until then, or release(),
  // the attempt keeps what they are made of. Without keep_graph.
  bool add_later = false;
  MutableBytes accumulator;  // of the stage's layout; weight gradients are added to its sums
  bool give_input_gradient = true;
  std::optional<WireRequest> as_wire;  // none: the input gradient leaves as values
};

struct BackwardOutput {
  Buffer input_gradient;  // all but stage 0: as ForwardOutput's hidden
  TensorSamplePtr sample;
  bool finite = true;
};

// A pass that was begun. wait(): once, on any thread, beside the model's calls, while the model is
// there; passes are waited for in the order in which they were begun. Before that computed() may
// wait for the products alone, while what goes out goes on. An error of either is kDevice or
// kDeviceLost: everything else is said when a pass is begun.
template <typename Output>
class Begun {
 public:
  virtual ~Begun() = default;
  virtual Result<void> computed() { return {}; }
  virtual Result<Output> wait() = 0;
};

// One that was over when it was begun.
template <typename Output>
class EndedPass final : public Begun<Output> {
 public:
  explicit EndedPass(Output output) : output_(std::move(output)) {}
  Result<Output> wait() override { return std::move(output_); }

 private:
  Output output_;
};

template <typename Output>
using BegunPass = Result<std::unique_ptr<Begun<Output>>>;

struct AddedGradients {};

class StageModel {
 public:
  virtual ~StageModel() = default;
  virtual Result<ForwardOutput> forward(const ForwardInput& input) = 0;
  virtual Result<BackwardOutput> backward(const BackwardInput& input) = 0;
  // The same, of which the device does the rest by itself where goes_on(): other calls may follow
  // at once, and count as made after it. The input is read no more then.
  virtual bool goes_on() const { return false; }  // never changes; any thread may ask
  virtual BegunPass<ForwardOutput> begin_forward(const ForwardInput& input) {
    return ended(forward(input));
  }
  virtual BegunPass<BackwardOutput> begin_backward(const BackwardInput& input) {
    return ended(backward(input));
  }
  // The weight gradients of an attempt whose backward() left them for later, with its scale and in
  // its order of sums. kNotFound: there are none.
  virtual Result<void> add_weight_gradients(AttemptId id, MutableBytes accumulator) = 0;
  virtual BegunPass<AddedGradients> begin_weight_gradients(AttemptId id, MutableBytes accumulator) {
    SWARMLINE_TRY(add_weight_gradients(id, accumulator));
    return ended(Result<AddedGradients>());
  }
  // The sums of an accumulator, a flat gradient in the stage's layout, are kept where the model
  // computes. They begin with clear_sums(); in the bytes they are from collect_sums() until the
  // next addition. Where keeps_sums() is false, they are in the bytes at any time.
  virtual bool keeps_sums() const { return false; }  // never changes; any thread may ask
  virtual void clear_sums(MutableBytes accumulator) {
    if (!accumulator.empty()) std::memset(accumulator.data(), 0, accumulator.size());
  }
  virtual Result<void> collect_sums(MutableBytes) { return {}; }
  // Where they are in a device's memory, in the layout; null: they are not. All that was queued for
  // them is done when it returns: a fabric reads them beside the device's own queue.
  virtual DeviceAddress device_sums(MutableBytes) { return nullptr; }
  // Makes there at once what is otherwise made when it is asked for first: the sums of these
  // accumulators, and with `other` the other version of the parameters. kOutOfMemory: no room.
  virtual Result<void> take_memory(std::span<const MutableBytes> /*accumulators*/, bool /*other*/) {
    return {};
  }
  virtual void release(AttemptId id) = 0;  // drops what is saved; nothing if there is none
  virtual std::size_t saved_graphs() const = 0;
  // Whether it decodes and encodes by itself: a device whose tensors cross to the host encoded
  // only. Never changes; any thread may ask.
  virtual bool takes_wire() const { return false; }
  virtual const ParameterLayout& layout() const = 0;
  // The parameters forward and backward use. Written between jobs only.
  virtual MutableBytes parameters() = 0;
  // Another version of them beside these, without a copy from one to the other: a second arena,
  // made when it is first asked for; exchange_parameters() makes each of the two the other one.
  // Graphs belong to the arena that forward() computed on: that one is in use again for their
  // backward().
  virtual MutableBytes other_parameters() = 0;
  virtual void exchange_parameters() = 0;
  // Tells the model that parameters() were written (copies to the device, if it is not the CPU);
  // other_parameters() are told of when they are in use.
  virtual void parameters_changed() = 0;
  // Of memory that tensors are brought to the device from, or to the host; null on the CPU. It may
  // outlive the model.
  virtual PageLock lock_pages(MutableBytes) { return {}; }
  // Where the parameters in use are in a device's memory, in the layout, for a step that is made
  // there; null: it is made in parameters(). Whoever writes them says so: from then on
  // collect_parameters() brings them to parameters(), which are older until it has.
  virtual DeviceAddress device_parameters() { return nullptr; }
  virtual void device_parameters_changed() {}
  virtual Result<void> collect_parameters() { return {}; }
  // State and step in the memory of that device; only where device_parameters() are.
  virtual Result<std::unique_ptr<DeviceOptimizer>> make_optimizer(const OptimizerSection&) {
    return fail(ErrorCode::kDevice, "a model in the host's memory");
  }
  // For gradients in that memory; only where device_parameters() are.
  virtual Result<std::unique_ptr<DeviceGradients>> make_gradients() {
    return fail(ErrorCode::kDevice, "a model in the host's memory");
  }

 protected:
  template <typename Output>
  static BegunPass<Output> ended(Result<Output> output) {
    if (!output) return std::unexpected(std::move(output).error());
    return std::make_unique<EndedPass<Output>>(std::move(*output));
  }
};

// Parameters are initialised from the seed. kUserMistake for a device this machine or build does
// not have.
Result<std::unique_ptr<StageModel>> make_stage_model(const ModelSpec& spec, const StageSpec& stage,
                                                     const StageModelOptions& options);
// Bytes of memory that a CUDA device has left; 0: no CUDA device, or not known. Opens the device.
// Thread: the device's.
std::uint64_t free_device_memory(const std::string& device);
// How many threads libtorch uses in this process, set once at start.
void set_compute_threads(int threads);

}  // namespace swarmline
