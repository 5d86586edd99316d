// What `swarmline bench codec` prints and writes. Pure.
//   Formats: docs/formats/bench.md, kind "codec".
#pragma once

#include <string>
#include <vector>

#include "tools/measure/bench_codec.h"

namespace swarmline {

struct CodecBenchReport {
  std::string machine;          // the processor
  std::string instruction_set;  // of the kernels
  double wall_seconds = 0;      // since 1970, when it began
  int rounds = 0;
  std::vector<CodecSpeed> speeds;
  std::vector<CodecAccuracy> accuracies;
};

inline constexpr std::uint64_t kCodecBenchFormat = 1;

// A line each, to be printed as results come; all of a table are equally wide.
std::string speed_head(std::uint64_t mib);
std::string speed_line(const CodecSpeed& speed);
std::string accuracy_head();
std::string accuracy_line(const CodecAccuracy& accuracy);

std::string to_json(const CodecBenchReport& report);
// One row for each speed and each accuracy; cells that do not apply are empty.
std::string to_csv(const CodecBenchReport& report);

// "fp32", "fp16" or "bf16", as in the config.
std::string_view bench_dtype_name(DType dtype);

}  // namespace swarmline
