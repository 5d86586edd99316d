// Which architecture of Hugging Face transformers computes what a model of ours does, and how its
// parameters are called and laid out there (docs/formats/huggingface.md).
//   Thread: pure functions of plain values.
//   Errors: kUserMistake: no architecture fits; the sentence names the key of [model] that is in
//           the way.
//   Source: transformers 5.23, models/{gpt2,llama,mistral,qwen3}.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/model/model_spec.h"

namespace swarmline {

enum class HfArchitecture : std::uint8_t { kGpt2, kLlama, kMistral, kQwen3 };

std::string_view class_name(HfArchitecture architecture);  // "GPT2LMHeadModel"
std::string_view model_type(HfArchitecture architecture);  // "gpt2"

Result<HfArchitecture> architecture_of(const ModelSpec& spec);

// Where a part of one of their tensors is among ours.
struct HfPart {
  std::string ours;          // "layers.0.attention.q.weight"; empty: zeros, which we have not
  std::int64_t outputs = 0;  // rows of ours that it holds
};
// One of their tensors: parts side by side along the output dimension.
struct HfTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  bool transposed = false;  // (inputs, outputs), as GPT-2's Conv1D keeps it; else (outputs, inputs)
  std::vector<HfPart> parts;
};
// All that a folder of this architecture has for the model, in the order of the layers. Layers that
// share parameters here have each their own there.
std::vector<HfTensor> hf_tensors(HfArchitecture architecture, const ModelSpec& spec);

}  // namespace swarmline
