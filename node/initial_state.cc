#include "node/initial_state.h"

#include <utility>

#include <fmt/format.h>

#include "balancer/cut.h"
#include "engine/checkpoint/checkpoint_folder.h"
#include "engine/huggingface/initial_parameters.h"
#include "node/folder_sink.h"
#include "node/run_data.h"

namespace swarmline {
namespace {

Result<StageSpec> whole_of(const RunConfig& config, const ModelSpec& model) {
  if (!model.has_boundary()) return whole_model(model, {});
  const auto cut = cut_layers(model_costs(model), {.stages = config.pipeline.stages,
                                                   .share_layers = model.shape.share_layers,
                                                   .stage_speeds = {},
                                                   .layers = config.pipeline.layers});
  if (!cut) return std::unexpected(cut.error());
  return whole_model(model, *cut);
}

std::unexpected<Error> about_init(const Error& error) {
  return fail(ErrorCode::kUserMistake, fmt::format("run.init: {}", error.what));
}

}  // namespace

std::string initial_folder(const RunFolder& folder) {
  return folder.path() + "/init";
}

Result<void> InitialState::write(const RunConfig& config, const RunFolder& folder) const {
  if (!source) return {};
  auto written = write_initial_parameters(*source, model, whole, manifest_for(config, model),
                                          initial_folder(folder));
  if (!written) return std::unexpected(std::move(written).error());
  return {};
}

Result<InitialState> find_initial_parameters(const RunConfig& config, const RunFolder& folder,
                                             bool fresh) {
  InitialState initial;
  if (config.run.init.empty()) return initial;
  const bool is_there = file_exists(checkpoint_path(initial_folder(folder), 0));
  if (is_there && !fresh) return initial;
  auto dataset = open_dataset(config);
  if (!dataset) return std::unexpected(std::move(dataset).error());
  auto model = resolve_model(config, dataset->vocab());
  if (!model) return std::unexpected(std::move(model).error());
  auto whole = whole_of(config, *model);
  if (!whole) return std::unexpected(std::move(whole).error());
  auto source = ModelSource::open(config.run.init);
  if (!source) return about_init(source.error());
  if (auto fits = check_initial_parameters(*source, *model, *whole); !fits)
    return about_init(fits.error());
  initial.source.emplace(std::move(*source));
  initial.model = std::move(*model);
  initial.whole = std::move(*whole);
  return initial;
}

}  // namespace swarmline
