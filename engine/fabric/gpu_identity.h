// What a peer says of the GPU that it computes on, so that its mates' coordinator knows who can
// reach whose memory. Plain values.
#pragma once

#include <cstdint>
#include <string>

namespace swarmline {

struct GpuIdentity {
  std::string uuid;        // "GPU-xxxxxxxx-...", as the driver says it; empty: it computes on none
  std::uint32_t nccl = 0;  // version of the library that it has, 22809: 2.28.9; 0: none
  bool ipc = false;        // it can map memory of other processes on its machine
  bool operator==(const GpuIdentity&) const = default;
};

}  // namespace swarmline
