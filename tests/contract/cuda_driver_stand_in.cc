#include "tests/contract/cuda_driver_stand_in.h"

#include <cuda.h>

extern "C" {

CudaDriverStandIn cuda_driver_stand_in;

CUresult cuMemGetAddressRange(CUdeviceptr* base, size_t* bytes, CUdeviceptr at) {
  std::uintptr_t begin = 0;
  if (!cuda_driver_stand_in.allocation(at, &begin, bytes)) return CUDA_ERROR_NOT_FOUND;
  *base = begin;
  return CUDA_SUCCESS;
}
CUresult cuPointerGetAttribute(void* data, CUpointer_attribute which, CUdeviceptr) {
  if (which != CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE) return CUDA_ERROR_INVALID_VALUE;
  *static_cast<unsigned*>(data) = cuda_driver_stand_in.can_share ? 1 : 0;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice* device, int number) {
  *device = 100 + number;
  return cuda_driver_stand_in.knows_device ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
// Its bytes count up from the device's handle.
CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  for (int i = 0; i < 16; ++i) uuid->bytes[i] = static_cast<char>(device + i);
  return CUDA_SUCCESS;
}

}  // extern "C"
