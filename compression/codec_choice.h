// codec = "auto": which codec one direction of one boundary should use. Pure.
//   Model:  a step's messages follow each other; what takes longest a message sets the pace: the
//           devices of a stage (computing, encoding, decoding) or the links. A codec qualifies when
//           its measured error is within the budget; `none` always does.
//   Choice: the pace of every codec that qualifies; of those within kCloseEnough of the best, the
//           most exact. The present one stays unless it is kWorthChanging slower than the best, or
//           a more exact one is as good as the best.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compression/codec.h"

namespace swarmline {

// What "auto" may pick from, `none` among them.
std::span<const CodecKind> auto_candidates();

struct CodecTrial {
  CodecSpec codec;
  double relative_error = 0;       // L2; NaN: something was not finite
  double seconds_per_element = 0;  // encoding and decoding
};

struct BoundaryLoad {
  std::uint64_t elements = 0;   // of a message
  DType dtype = DType::kF32;    // of the model
  double device_seconds = 0;    // a message takes of the slower stage's devices, codec apart
  std::uint32_t devices = 1;    // that encode or decode at a time
  double bytes_per_second = 0;  // of one link; 0: so fast that nothing was measured
  std::uint32_t links = 1;      // that carry messages at a time
};

class CodecChooser {
 public:
  static constexpr double kCloseEnough = 1.02;
  static constexpr double kWorthChanging = 1.10;

  explicit CodecChooser(double error_budget) : error_budget_(error_budget) {}

  // `trials`: of the codecs tried so far; `none` need not be among them.
  CodecSpec choose(const CodecSpec& present, const BoundaryLoad& load,
                   const std::vector<CodecTrial>& trials) const;
  // Seconds between two messages.
  static double pace(const CodecTrial& trial, const BoundaryLoad& load);

 private:
  double error_budget_;
};

}  // namespace swarmline
