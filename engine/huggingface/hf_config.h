// config.json and generation_config.json of a folder that Hugging Face transformers opens.
//   Thread: pure. Errors of parsing: kCorrupt; kIncompatible: an architecture or a setting that no
//   model of ours has; the sentence begins with `path` and names the key.
//   Bounds:  the caller bounds the text (kHfConfigBytesMax).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/dtype.h"
#include "base/result.h"
#include "base/units.h"
#include "engine/huggingface/architecture.h"

namespace swarmline {

inline constexpr std::uint64_t kHfConfigBytesMax = 4 * kMiB;

struct HfConfig {
  HfArchitecture architecture = HfArchitecture::kGpt2;
  ModelSpec model;  // resolved; its sequence is what positions reach to
  DType dtype = DType::kF32;
  std::optional<std::uint32_t> end_token;  // that ends a document
};

std::string to_config_json(const HfConfig& config);
std::string to_generation_config_json(const HfConfig& config);
Result<HfConfig> parse_hf_config(std::string_view json, const std::string& path);

}  // namespace swarmline
