// What is known of a stage when computing is set against sending: measured by bench_ratio.h, shown
// by bench_ratio_report.h. Plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "compression/codec.h"
#include "tools/predict/square_cube.h"

namespace swarmline {

struct RatioShape {
  std::uint32_t hidden = 0, layers = 0, sequence = 0;
  bool operator==(const RatioShape&) const = default;
};

struct RatioWire {
  CodecSpec codec;
  double codec_seconds = 0;  // of a microbatch: encoded and decoded both ways
  std::uint64_t forward_bytes = 0, backward_bytes = 0;  // at the socket
};

enum class RatioSource : std::uint8_t { kMeasured, kNoTime, kNoMemory };

struct RatioStage {
  RatioShape shape;
  std::uint64_t parameters = 0;
  double flops = 0;     // forward and backward of a microbatch, matrix products only
  double elements = 0;  // of activations: microbatch, tokens, layers and hidden size
  RatioSource source = RatioSource::kMeasured;
  double forward_seconds = 0, backward_seconds = 0;
  std::optional<double> product_flops_per_second;  // of the plain product, where measured
  std::vector<RatioWire> wires;                    // one for each codec

  StageLoad load(const RatioWire& wire) const {
    return {.forward_seconds = forward_seconds,
            .backward_seconds = backward_seconds,
            .codec_seconds = wire.codec_seconds,
            .forward_bytes = static_cast<double>(wire.forward_bytes),
            .backward_bytes = static_cast<double>(wire.backward_bytes)};
  }
};

}  // namespace swarmline
