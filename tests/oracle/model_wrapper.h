// Real models inside wrappers of a test's own.
#pragma once

#include <memory>
#include <utility>

#include "engine/model/stage_model.h"
#include "sim/cluster/model_wrapper.h"

namespace swarmline::oracle {

// For SimClusterOptions::make_model: the real model inside Wrapper(model, stage, extra...).
template <typename Wrapper, typename... Extra>
auto wrapped(Extra... extra) {
  return [extra...](const ModelSpec& spec, const StageSpec& stage,
                    const StageModelOptions& options) -> Result<std::unique_ptr<StageModel>> {
    auto model = make_stage_model(spec, stage, options);
    if (!model) return model;
    return std::make_unique<Wrapper>(std::move(*model), stage, extra...);
  };
}

}  // namespace swarmline::oracle
