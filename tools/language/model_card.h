// README.md of an exported model: what it is, where it comes from, how it is loaded.
//   Thread: pure.
#pragma once

#include <optional>
#include <string>

#include "engine/config/run_config.h"
#include "engine/huggingface/model_source.h"

namespace swarmline {

// `run`: the one that it comes from, where its config is at hand.
std::string model_card(const ModelSource& source, const std::optional<RunConfig>& run);

}  // namespace swarmline
