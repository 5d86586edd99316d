// NVIDIA's driver without a GPU: what engine/fabric/cuda_fabric.cc finds in libcuda.so.1, as a
// library of that name (cuda_driver_stand_in.cc). Whoever links it says what it answers.
//   Thread: set before it is asked; any asks.
#pragma once

#include <cstddef>
#include <cstdint>

struct CudaDriverStandIn {
  // False: `at` is in no device's memory.
  bool (*allocation)(std::uintptr_t at, std::uintptr_t* base, std::size_t* bytes) = nullptr;
  bool can_share = true;
  bool knows_device = true;
};

extern "C" CudaDriverStandIn cuda_driver_stand_in;
