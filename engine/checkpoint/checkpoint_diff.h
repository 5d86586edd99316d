// Two checkpoints tensor by tensor, whatever their numbers of stages.
//   Numbers: compared in double. NaN against NaN and an infinity against itself are no difference;
//            against anything else the difference is infinite.
//   Thread:  pure. Errors: those of CheckpointReader.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"
#include "engine/checkpoint/checkpoint_reader.h"

namespace swarmline {

inline constexpr int kDiffFormat = 1;

struct TensorDiff {
  std::string name;
  std::vector<std::int64_t> shape;
  DType dtype_a = DType::kF32;
  DType dtype_b = DType::kF32;
  double max_abs = 0;          // largest |a - b|
  double max_rel_to_peak = 0;  // largest |a - b| / largest |a|
  double max_rel = 0;          // largest |a - b| / max(|a|, |b|), element by element
  std::uint64_t elements_different = 0;
  bool equal_bits = false;  // same dtype and the same bytes
};

struct ShapeMismatch {
  std::string name;
  std::vector<std::int64_t> shape_a;
  std::vector<std::int64_t> shape_b;
};

struct CheckpointDiff {
  std::string path_a;
  std::string path_b;
  std::vector<TensorDiff> tensors;     // in both, of one shape; by name
  std::vector<std::string> only_in_a;  // by name
  std::vector<std::string> only_in_b;
  std::vector<ShapeMismatch> mismatches;        // by name
  bool state_in_a = false, state_in_b = false;  // a run's state, too, which is not compared

  bool same_tensors() const {  // the comparison covers both sides whole
    return only_in_a.empty() && only_in_b.empty() && mismatches.empty();
  }
  bool equal_bits() const;
};

CheckpointDiff diff_checkpoints(const CheckpointReader& a, const CheckpointReader& b);
// Opens both.
Result<CheckpointDiff> diff_checkpoints(const std::string& path_a, const std::string& path_b);

std::string to_text(const CheckpointDiff& diff);  // a table and a summary, with a final newline
std::string to_json(
    const CheckpointDiff& diff);  // docs/formats/checkpoint.md, with a final newline

}  // namespace swarmline
