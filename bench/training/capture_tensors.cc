// Real tensors to try codecs on: what crosses the stage boundaries of a run, and some of its
// parameter gradients, as one safetensors file (docs/formats/bench.md).
//
//     capture_tensors CONFIG CHECKPOINT OUT
//
// The stages of CONFIG with the parameters of CHECKPOINT, one after the other in this process, work
// on the microbatches of the step that comes next. From the first sequences: the activations
// behind the first and before the last stage and their gradients; from the whole step: gradients of
// the embedding and of the MLP in the middle of the model.

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/check.h"
#include "engine/checkpoint/checkpoint_reader.h"
#include "engine/checkpoint/safetensors.h"
#include "engine/config/load.h"
#include "engine/model/stage_model.h"
#include "node/run_data.h"
#include "node/stage_table.h"

namespace swarmline {
namespace {

struct Captured {
  TensorInfo info;
  Buffer bytes;
};

constexpr std::int64_t kSequencesMax = 2;  // of a microbatch: the file is kept with the sources

class Pipeline {
 public:
  Pipeline(RunConfig config, ModelSpec model, TokenDataset dataset)
      : config_(std::move(config)),
        spec_(std::move(model)),
        source_(make_dataset_source(config_, std::move(dataset))),
        tokens_(std::size_t{config_.batch.microbatch} * config_.batch.sequence),
        targets_(tokens_.size()) {}

  Result<void> load(const CheckpointReader& checkpoint);
  Result<void> run_step(std::uint64_t step);
  std::vector<Captured> take();

 private:
  Result<void> run_microbatch(const AttemptId& id);
  void capture(std::string name, const Buffer& hidden);
  void capture_gradient(std::size_t stage, const std::string& parameter);

  RunConfig config_;
  ModelSpec spec_;
  std::unique_ptr<MicrobatchSource> source_;
  std::vector<std::int32_t> tokens_, targets_;
  std::vector<std::unique_ptr<StageModel>> stages_;
  std::vector<Buffer> gradients_;  // flat, a stage's each
  std::vector<Captured> captured_;
};

Result<void> Pipeline::load(const CheckpointReader& checkpoint) {
  const auto cut = stage_holdings(config_, spec_);
  if (!cut) return std::unexpected(cut.error());
  for (const StageHolding& holding : *cut) {
    auto stage = make_stage_model(spec_, holding.stage, {});
    if (!stage) return std::unexpected(std::move(stage).error());
    SWARMLINE_TRY(checkpoint.load((*stage)->layout(), (*stage)->parameters()));
    (*stage)->parameters_changed();
    gradients_.push_back(Buffer::zeroed((*stage)->layout().bytes()));
    stages_.push_back(std::move(*stage));
  }
  if (stages_.size() < 3 || spec_.shape.stream_dtype() != DType::kF32) {
    return fail(ErrorCode::kUserMistake,
                "the config has fewer than three stages, or hidden states other than fp32");
  }
  return {};
}

void Pipeline::capture(std::string name, const Buffer& hidden) {
  const std::int64_t sequences = std::min<std::int64_t>(config_.batch.microbatch, kSequencesMax);
  const std::vector<std::int64_t> shape = {sequences, config_.batch.sequence, spec_.hidden_width()};
  const std::size_t bytes = hidden.size() / config_.batch.microbatch * sequences;
  captured_.push_back({.info = {.name = std::move(name), .dtype = DType::kF32, .shape = shape},
                       .bytes = Buffer::copy_of(hidden.bytes().first(bytes))});
}

Result<void> Pipeline::run_microbatch(const AttemptId& id) {
  SWARMLINE_TRY(source_->read(id.microbatch, tokens_, targets_));
  const bool is_first = id.microbatch.index == 0;
  const std::size_t last = stages_.size() - 1;
  Buffer hidden;
  for (std::size_t s = 0; s <= last; ++s) {
    auto output =
        stages_[s]->forward({.id = id,
                             .train = true,
                             .rows = config_.batch.microbatch,
                             .tokens = s == 0 ? std::as_bytes(std::span(tokens_)) : BytesView(),
                             .hidden = hidden.bytes(),
                             .targets = std::as_bytes(std::span(targets_)),
                             .loss_scale = 1.0 / static_cast<double>(config_.tokens_per_step())});
    if (!output) return std::unexpected(std::move(output).error());
    hidden = std::move(output->hidden);
    if (is_first && (s == 0 || s + 1 == last)) capture(fmt::format("activation.{}", s), hidden);
  }
  Buffer gradient;
  for (std::size_t s = last + 1; s-- > 0;) {
    auto output = stages_[s]->backward(
        {.id = id, .output_gradient = gradient.bytes(), .accumulator = gradients_[s].bytes()});
    if (!output) return std::unexpected(std::move(output).error());
    gradient = std::move(output->input_gradient);
    if (is_first && (s == 1 || s == last)) {
      capture(fmt::format("activation_gradient.{}", s - 1), gradient);
    }
  }
  return {};
}

void Pipeline::capture_gradient(std::size_t stage, const std::string& parameter) {
  const ParameterLayout& layout = stages_[stage]->layout();
  for (const ParameterSlot& slot : layout.slots) {
    if (slot.name != parameter) continue;
    const std::size_t bytes = slot.elements * sizeof(float);
    captured_.push_back({.info = {.name = "parameter_gradient." + parameter,
                                  .dtype = DType::kF32,
                                  .shape = slot.shape},
                         .bytes = Buffer::copy_of(gradients_[stage].bytes().subspan(
                             slot.offset * sizeof(float), bytes))});
  }
}

Result<void> Pipeline::run_step(std::uint64_t step) {
  for (std::uint32_t index = 0; index < config_.microbatches_per_step(); ++index) {
    SWARMLINE_TRY(run_microbatch({{{PhaseKind::kTrain, step}, index}, Attempt{0}}));
  }
  capture_gradient(0, "embed.tokens.weight");
  const std::uint32_t layer = config_.model.layers / config_.model.share_layers / 2;
  for (std::size_t s = 0; s < stages_.size(); ++s) {
    capture_gradient(s, fmt::format("layers.{}.mlp.up.weight", layer));
  }
  return {};
}

std::vector<Captured> Pipeline::take() {
  return std::move(captured_);
}

Result<void> write(const std::string& path, const std::vector<Captured>& tensors,
                   const std::map<std::string, std::string>& metadata) {
  std::vector<TensorInfo> infos;
  for (const Captured& tensor : tensors) infos.push_back(tensor.info);
  const SafetensorsLayout layout = lay_out_safetensors(std::move(infos), metadata);
  auto file = AtomicFile::create(path);
  if (!file) return std::unexpected(std::move(file).error());
  SWARMLINE_TRY(file->append(as_bytes(layout.header)));
  for (const Captured& tensor : tensors) SWARMLINE_TRY(file->append(tensor.bytes.bytes()));
  return file->finish();
}

Result<void> capture_tensors(const std::string& config_path, const std::string& checkpoint_path,
                             const std::string& out_path) {
  auto config = load_run_config(config_path);
  if (!config) return std::unexpected(std::move(config).error());
  auto data = open_run_data(*config, false);
  if (!data) return std::unexpected(std::move(data).error());
  auto checkpoint = CheckpointReader::open(checkpoint_path);
  if (!checkpoint) return std::unexpected(std::move(checkpoint).error());
  const std::uint64_t step = checkpoint->manifest() ? checkpoint->manifest()->step : 0;
  Pipeline pipeline(*config, data->model, std::move(data->dataset));
  SWARMLINE_TRY(pipeline.load(*checkpoint));
  SWARMLINE_TRY(pipeline.run_step(step));
  return write(out_path, pipeline.take(),
               {{"run", config->run.name}, {"step", std::to_string(step)}});
}

}  // namespace
}  // namespace swarmline

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fputs("usage: capture_tensors CONFIG CHECKPOINT OUT.safetensors\n", stderr);
    return 2;
  }
  const auto done = swarmline::capture_tensors(argv[1], argv[2], argv[3]);
  if (!done) std::fprintf(stderr, "capture_tensors: %s\n", done.error().what.c_str());
  return done ? 0 : 1;
}
