// The parameters of a saved model under our names, wherever they come from: a checkpoint of a run,
// or a folder that Hugging Face transformers opens (docs/formats/huggingface.md).
//   Types:     fp32, fp64, fp16 and bf16; whoever reads says what it wants.
//   Ownership: keeps its files mapped. Thread: immutable.
//   Errors:    kNotFound, kCorrupt, kIncompatible, kIo of the files; kUserMistake: it does not fit
//              the model that is wanted.
//   Bounds:    kHfConfigBytesMax, kHfIndexBytesMax; kHfShardsMax files; of what does not fit at
//              most kMisfitsNamedMax tensors are named, the rest counted.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/dtype.h"
#include "base/result.h"
#include "base/units.h"
#include "engine/checkpoint/checkpoint_reader.h"
#include "engine/checkpoint/safetensors.h"
#include "engine/huggingface/hf_config.h"
#include "engine/model/model_spec.h"

namespace swarmline {

inline constexpr std::uint64_t kHfIndexBytesMax = 64 * kMiB;
inline constexpr std::size_t kHfShardsMax = 4096;
inline constexpr std::size_t kMisfitsNamedMax = 64;

class ModelSource {
 public:
  // "hf:DIR", "checkpoint:PATH", or without either: DIR where it has a config.json, else PATH, a
  // run folder (its newest whole checkpoint) or a checkpoints/step-N folder.
  static Result<ModelSource> open(const std::string& text);

  const ModelSpec& model() const { return model_; }
  // Layers behind a learned boundary, rising.
  const std::vector<std::uint32_t>& boundaries() const { return boundaries_; }
  const std::string& path() const { return path_; }          // what was opened in the end
  const std::optional<HfConfig>& hf() const { return hf_; }  // of such a folder
  const std::optional<Manifest>& manifest() const;           // of a checkpoint

  // Whether a model has what it needs here and leaves nothing over. The sentence names each key of
  // [model] that differs, and each tensor that is missing, extra, or of another shape. A table of
  // positions may be longer than `wanted` needs.
  Result<void> check(const ModelSpec& wanted, const ParameterLayout& layout) const;
  // A parameter's values, row-major, in `dtype`, into `out`. check() has said that it is there.
  void read(const std::string& name, DType dtype, MutableBytes out) const;

 private:
  // A parameter: rows [first, first + outputs) of what a file holds, maybe transposed.
  struct Values {
    std::string name;  // theirs
    DType dtype = DType::kF32;
    std::vector<std::int64_t> shape;  // ours
    BytesView bytes;                  // of the whole tensor there
    bool transposed = false;          // (inputs, outputs) there
    std::int64_t first = 0;           // output
    std::int64_t total = 0;           // outputs there
  };

  ModelSource() = default;
  static Result<ModelSource> open_checkpoint(const std::string& path);
  static Result<ModelSource> open_hf(const std::string& folder);
  Result<void> add_hf_files(const std::string& folder);
  Result<void> add_hf_file(const std::string& path);
  void match_hf_tensors();
  void take_parts(const HfTensor& tensor, const TensorInfo& info, BytesView bytes);
  bool biases_are_zero() const;

  ModelSpec model_;
  std::vector<std::uint32_t> boundaries_;
  std::string path_;
  std::optional<HfConfig> hf_;
  std::shared_ptr<CheckpointReader> checkpoint_;
  std::vector<std::shared_ptr<SafetensorsFile>> files_;
  std::map<std::string, std::pair<const TensorInfo*, BytesView>> hf_files_;  // by their name
  std::map<std::string, Values> values_;                                     // by our name
  std::vector<std::string> missing_, extra_, misshapen_;  // known at once, of a folder of theirs
};

}  // namespace swarmline
