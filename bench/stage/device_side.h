// What the stage benchmark does on a device beside the model: waits for it, runs the codec there by
// itself, times copies. On the CPU the codec is the host's, and nothing has to be waited for.
//   Thread: one. Errors: the codec's and kDevice; libtorch's exceptions where a device is lost.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "compression/codec.h"
#include "engine/model/stage_model.h"

namespace swarmline::bench {

// Microseconds on the host's clock until what `body` began on `device` is done.
double microseconds(const std::string& device, const std::function<void()>& body);

// The codec as the model calls it: on the device where the model takes wire buffers.
class WireCodec {
 public:
  virtual ~WireCodec() = default;
  // Into memory of its own, where the model computes.
  virtual Result<void> decode(BytesView wire) = 0;
  // What was decoded last.
  virtual Result<Buffer> encode(const CodecSpec& codec) = 0;
};
Result<std::unique_ptr<WireCodec>> make_wire_codec(const std::string& device,
                                                   const StageModel& model, std::uint64_t elements);

struct CopyRate {
  const char* form = "";
  double us = 0;
};
// Of `bytes` to the device and back, from pageable and from page-locked memory, medians; empty on
// the CPU. Without the latter two where pages can't be locked.
std::vector<CopyRate> time_copies(const std::string& device, StageModel& model, std::size_t bytes,
                                  int rounds);

}  // namespace swarmline::bench
