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

}  // namespace swarmline::cuda
