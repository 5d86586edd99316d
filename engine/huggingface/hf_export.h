// Writes a model as a folder that Hugging Face transformers opens (docs/formats/huggingface.md):
// safetensors (with an index where they are several), config.json, generation_config.json,
// README.md and, where there is one, a tokenizer.
//   What:   the folder appears whole, by one rename; until then it is OUT.partial.
//   Thread: blocking. Errors: kUserMistake: no architecture fits, or OUT is there already; kIo.
//   Bounds: one tensor in memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"
#include "engine/huggingface/architecture.h"
#include "engine/huggingface/model_source.h"

namespace swarmline {

inline constexpr std::uint64_t kHfShardBytes = 5'000'000'000;  // as save_pretrained() has it

struct HfExportOptions {
  std::string out;
  std::optional<DType> dtype;  // none: as the source has it
  std::uint64_t shard_bytes = kHfShardBytes;
  std::optional<std::uint32_t> end_token;  // that ends a document
  // Beside the weights; the model card is README.md of these.
  struct File {
    std::string name;
    std::string text;
  };
  std::vector<File> files;
};

struct HfExported {
  HfArchitecture architecture = HfArchitecture::kGpt2;
  DType dtype = DType::kF32;
  std::uint64_t parameters = 0;
  std::vector<std::string> files;  // of weights
};
Result<HfExported> export_hf(const ModelSource& source, const HfExportOptions& options);

}  // namespace swarmline
