// Which codec a computed tensor leaves with, and how well codecs do on what this peer sends: now
// and then the beginning of a tensor is encoded and decoded once more where its codec works, after
// all other work, and compared. With codec "auto" every candidate is tried, else only the one in
// use.
//   Thread:  control thread; the trials are device jobs.
//   Bounds:  one tensor in kSampleEvery, the first one included; at most kSampleElementsMax of it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "base/callback_guard.h"
#include "compression/measure.h"
#include "pipeline/stage/microbatches/stage_compute.h"

namespace swarmline {

class CodecMonitor {
 public:
  static constexpr std::uint32_t kSampleEvery = 64;
  static constexpr std::size_t kSampleElementsMax = 4 * std::size_t{kWireTileElements};

  enum class Way : std::uint8_t { kForward, kBackward };

  explicit CodecMonitor(StageContext& context);

  // How the result of this task leaves, forward or as the gradient of its input.
  WireRequest plan(Way way, const MicrobatchTask& task);
  // What plan() asked to be kept; may be null.
  void on_sample(Way way, const Phase& phase, const TensorSamplePtr& sample);
  // A tensor that came that way: how fast its bytes arrived.
  void on_arrival(Way way, const Phase& phase, const Frame& frame);
  // Everything measured since the report before.
  void take(const Phase& phase, wire::BoundaryBytes& report);

 private:
  using Key = std::pair<Way, CodecKind>;
  struct Sums {
    CodecError error;
    std::uint64_t elements = 0;
    std::uint64_t codec_ns = 0;
  };
  std::uint32_t boundary(Way way) const;
  bool crosses(Way way) const;  // this stage sends that way
  void try_codec(Way way, const Phase& phase, const CodecSpec& codec,
                 const TensorSamplePtr& sample);
  void add(Way way, CodecKind kind, const CodecError& error, std::uint64_t elements, Duration time);

  StageContext& context_;
  std::map<Way, std::uint32_t> sent_;
  std::map<Key, Sums> sums_;
  struct Arrivals {
    std::uint64_t bytes = 0;
    std::uint64_t ns = 0;
  };
  std::map<Way, Arrivals> arrivals_;
  CallbackGuard guard_;
};

}  // namespace swarmline
