// A device's queue of its own beside all others, in which a fabric's copies go.
//   Ownership: closed with it; what is in it has ended before.
//   Thread:    one at a time, which has chosen the device. Errors: kDevice with CUDA's sentence.
#pragma once

#include "base/result.h"

namespace swarmline {

class DeviceStream {
 public:
  virtual ~DeviceStream() = default;
  virtual void* native() = 0;            // a cudaStream_t; null: of a double
  virtual Result<bool> has_ended() = 0;  // all that was put into it so far
};

}  // namespace swarmline
