// Puts the parameters that a run begins with into its folder, as a checkpoint of step 0 without an
// optimizer's state: a run that goes back, or on, begins with these bytes again, whatever has
// become of where they were taken from.
//   Thread: blocking. Errors: those of ModelSource; kIo. Bounds: one tensor in memory.
#pragma once

#include <string>

#include "base/result.h"
#include "engine/huggingface/model_source.h"

namespace swarmline {

// kUserMistake where `source` does not fit the model that the run has: `whole`, in one piece with
// the boundaries where the run's cut has them.
Result<void> check_initial_parameters(const ModelSource& source, const ModelSpec& model,
                                      const StageSpec& whole);
// As FOLDER/step-0; `manifest`: what the run's checkpoints say of it. Returns its path.
Result<std::string> write_initial_parameters(const ModelSource& source, const ModelSpec& model,
                                             const StageSpec& whole, Manifest manifest,
                                             const std::string& folder);

}  // namespace swarmline
