// The tensors of a checkpoint by name, however many stages it was saved from.
//   Thread: immutable. Errors: kNotFound, kCorrupt, kIncompatible, kIo; sentences name file and
//   tensor.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "engine/checkpoint/manifest.h"
#include "engine/checkpoint/safetensors.h"
#include "engine/model/model_spec.h"

namespace swarmline {

class CheckpointReader {
 public:
  // `path`: a run folder (its newest complete checkpoint), a checkpoints/step-N folder, or one
  // .safetensors file.
  static Result<CheckpointReader> open(const std::string& path);

  struct Tensor {
    const TensorInfo* info = nullptr;
    BytesView bytes;
  };
  const std::map<std::string, Tensor>& tensors() const { return tensors_; }  // parameters, by name
  // The optimizer's and other state that a run goes on from (engine/optimizer/saved_state.h).
  const std::map<std::string, Tensor>& state_tensors() const { return state_tensors_; }
  Result<BytesView> find(const std::string& name) const;  // of either kind; kNotFound
  // Absent for a single file.
  const std::optional<Manifest>& manifest() const { return manifest_; }
  const std::string& path() const { return path_; }  // what was opened in the end

  // Copies every slot of `layout` into `arena` (layout.bytes(); gaps are left alone). The number of
  // stages need not be the one it was saved with. kNotFound, kIncompatible: a slot's tensor is
  // absent, or of another shape or dtype.
  Result<void> load(const ParameterLayout& layout, MutableBytes arena,
                    const std::string& prefix = "") const;

 private:
  CheckpointReader() = default;
  Result<void> add_file(const std::string& path);

  std::string path_;
  std::optional<Manifest> manifest_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, Tensor> tensors_, state_tensors_;
};

}  // namespace swarmline
