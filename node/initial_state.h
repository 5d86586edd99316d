// The parameters that a run begins with where they are another model's ([run] init): looked at
// before the run folder is made, copied into it then (engine/huggingface/initial_parameters.h).
//   Thread: blocking. Errors: kUserMistake as a sentence about run.init; those of the files.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "engine/config/run_config.h"
#include "engine/huggingface/model_source.h"
#include "node/run_folder.h"

namespace swarmline {

std::string initial_folder(const RunFolder& folder);  // where they are, in a run's

// Nothing to write: they are drawn from the seed, or the folder has them.
struct InitialState {
  std::optional<ModelSource> source;
  ModelSpec model;
  StageSpec whole;  // with the boundaries where the run's cut has them

  Result<void> write(const RunConfig& config, const RunFolder& folder) const;
};
// What run.init names fits the run's model. `fresh`: whatever lies in the folder moves aside.
Result<InitialState> find_initial_parameters(const RunConfig& config, const RunFolder& folder,
                                             bool fresh);

}  // namespace swarmline
