// Compute against communication of a stage on this machine: `swarmline bench ratio`.
//   Measured:  forward and backward of a stage from the middle of a model (no embedding, no head),
//              medians after half a second to warm up; encoding and decoding of what it sends and
//              takes; the bytes of a microbatch's messages both ways, counted at a loopback socket;
//              a plain matrix product of the stage's widest shape.
//   Modelled:  stages that do not fit into memory or into the time given, from the trend of those
//              measured.
//   Ownership: values. Thread: one. Errors: kUserMistake for shapes that no model can have and
//              devices that are not there; kDevice.
//   Bounds:    kRatioElementsMax of one activation; the time given, but for the smallest stage and
//              for one estimate that was too low.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "compression/codec.h"
#include "engine/config/run_config.h"
#include "tools/measure/bench_codec.h"
#include "tools/measure/ratio_stage.h"

namespace swarmline {

// 512 MiB as fp32; the engine takes no more than 1 GiB as one message.
inline constexpr std::uint64_t kRatioElementsMax = 1 << 27;

struct RatioOptions {
  // Its model gives all but the sizes: norm, activation, dtype, width of a head and of the MLP
  // relative to the hidden size; its batch the microbatch, its pipeline whether to recompute.
  RunConfig config;
  std::string device = "cpu";
  int threads = 1;
  int rounds = 5;
  double seconds = 120;  // for measuring stages
  // What the device is held for at least, as with a peer's emulate keys. 0: as long as it takes.
  double emulate_forward_seconds = 0, emulate_backward_seconds = 0;
  std::uint64_t memory_bytes = 0;  // that may be used on the CPU
  std::vector<CodecSpec> codecs;
};

// Told of each piece of work before it begins.
using RatioProgress = std::function<void(const std::string& what)>;
inline std::size_t ratio_pieces(const RatioOptions& options,
                                const std::vector<RatioShape>& shapes) {
  return shapes.size() * (1 + options.codecs.size());
}

// In the order of `shapes`.
Result<std::vector<RatioStage>> measure_ratios(const RatioOptions& options,
                                               const std::vector<RatioShape>& shapes,
                                               const SecondsClock& clock,
                                               const RatioProgress& progress);

// Bytes of a microbatch's messages over one boundary, with a peer's answers, forward and back.
struct SocketBytes {
  std::uint64_t forward = 0, backward = 0;
};
Result<SocketBytes> count_socket_bytes(const Buffer& activation, const Buffer& gradient,
                                       std::uint32_t rows, const std::string& targets);

}  // namespace swarmline
