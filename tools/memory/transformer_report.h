// What training a Transformer on one device takes, for people and as JSON (docs/formats/memory.md).
// Pure.
#pragma once

#include <string>

#include "tools/memory/transformer_memory.h"

namespace swarmline {

std::string training_memory_text(const TransformerShape& shape, const TrainingSetup& setup);
std::string training_memory_json(const TransformerShape& shape, const TrainingSetup& setup);

}  // namespace swarmline
