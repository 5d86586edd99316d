#include <cuda_runtime.h>

#include "engine/model/page_lock.h"

namespace swarmline::cuda {

bool lock_pages(void* memory, std::size_t bytes) {
  if (cudaHostRegister(memory, bytes, cudaHostRegisterPortable) == cudaSuccess) return true;
  cudaGetLastError();  // else the next launch reports it once more
  return false;
}

void unlock_pages(void* memory) {
  cudaHostUnregister(memory);
}

std::uint64_t free_memory(int device) {
  std::size_t free_bytes = 0, total = 0;
  const bool known =
      cudaSetDevice(device) == cudaSuccess && cudaMemGetInfo(&free_bytes, &total) == cudaSuccess;
  if (!known) cudaGetLastError();
  return known ? free_bytes : 0;
}

}  // namespace swarmline::cuda
