// CUDA's calls for what processes share of a device, over a stand-in for it (cuda_stand_in.h): all
// of them in one process here. A handle is the allocation's address.

#include <cstring>

#include <gtest/gtest.h>

#include "tests/kernels/cuda_stand_in_device.h"

using swarmline::testing::Locked;
using swarmline::testing::StandInSide;

extern "C" {

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* memory) {
  const Locked all;
  if (const cudaError_t error = all->begin(); error != cudaSuccess) return error;
  const auto allocation = all->allocation_of(memory);
  EXPECT_TRUE(allocation && allocation->data() == memory) << "no allocation's beginning";
  *handle = {};
  std::memcpy(handle->reserved, &memory, sizeof memory);
  return cudaSuccess;
}
cudaError_t cudaIpcOpenMemHandle(void** mapped, cudaIpcMemHandle_t handle, unsigned flags) {
  const Locked all;
  if (const cudaError_t error = all->begin(); error != cudaSuccess) return error;
  EXPECT_EQ(flags, unsigned{cudaIpcMemLazyEnablePeerAccess});
  std::memcpy(mapped, handle.reserved, sizeof *mapped);
  if (!all->allocation_of(*mapped)) return all->report(cudaErrorInvalidValue);
  ++all->mapped[*mapped];
  return cudaSuccess;
}
cudaError_t cudaIpcCloseMemHandle(void* mapped) {
  const Locked all;
  const auto found = all->mapped.find(mapped);
  EXPECT_NE(found, all->mapped.end()) << "unmapped, but was not mapped";
  if (found != all->mapped.end() && --found->second == 0) all->mapped.erase(found);
  return all->state();
}

}  // extern "C"
