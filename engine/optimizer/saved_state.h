// What a checkpoint keeps of a stage, tensor by tensor: parameters under their names, the
// optimizer's moments under "optimizer.m." and "optimizer.v." (a matrix that Muon steps has only
// the first), and with a delay the parameters of the version before under "previous.". Names do not
// depend on the cut.
//   Bytes:  parameters | first moment | second moment [| parameters before], each as it lies in
//           memory (state_layout.h); what lies between tensors is zero.
//   8 bits: a coded moment is two tensors: its codes (u8, the parameter's shape) and, with
//           ".scales" behind its name, one fp32 scale a block.
//   Thread: pure functions of plain values.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/dtype.h"
#include "base/result.h"
#include "engine/config/run_config.h"
#include "engine/model/model_spec.h"

namespace swarmline {

struct SavedTensor {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;
  std::uint64_t at = 0;  // bytes into the saved state
  std::uint64_t bytes = 0;
  bool tied = false;  // stored by stage 0 alone
};
struct SavedState {
  std::vector<SavedTensor> tensors;  // by `at`
  std::uint64_t bytes = 0;
};
// `with_optimizer`: all of it; else the parameters alone.
SavedState saved_state(const RunConfig& config, const ParameterLayout& layout, bool with_optimizer);

// The tensors in one of `parts` files of about as many bytes each: a tensor is in the part where
// its middle lies. They follow each other, and are in the saved state's bytes from `first` on.
struct SavedPart {
  std::span<const SavedTensor> tensors;  // of the saved state, which outlives it
  std::uint64_t first = 0;
  std::uint64_t bytes = 0;
};
SavedPart part_of(const SavedState& saved, std::uint32_t part, std::uint32_t parts);

using FindTensor = std::function<Result<BytesView>(const std::string& name)>;
// kNotFound, kIncompatible: a tensor is absent, or of another size; the sentence names it.
Result<void> check_saved(const SavedState& saved, const FindTensor& find);
// Fills `out` with the saved state's bytes from `first` on. Errors: those of check_saved().
Result<void> read_saved(const SavedState& saved, const FindTensor& find, std::uint64_t first,
                        MutableBytes out);

}  // namespace swarmline
