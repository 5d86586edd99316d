// In place of NVIDIA's driver, libcuda.so.1: what cuda_fabric.cc asks of it, about memory that
// cuda_ipc_test.cc names.
#include <cstring>
#include <cuda.h>

namespace {

CUdeviceptr range_base = 0;
std::size_t range_bytes = 0;

}  // namespace

extern "C" {

// Of all memory asked about from now on. 0 bytes: the driver knows nothing of it.
void stand_in_range(void* base, std::size_t bytes);
void stand_in_range(void* base, std::size_t bytes) {
  range_base = reinterpret_cast<CUdeviceptr>(base);
  range_bytes = bytes;
}

CUresult cuMemGetAddressRange(CUdeviceptr* base, std::size_t* bytes, CUdeviceptr) {
  *base = range_base;
  *bytes = range_bytes;
  return range_bytes > 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute, CUdeviceptr) {
  const unsigned can_be_shared = 1;
  std::memcpy(data, &can_be_shared, sizeof can_be_shared);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int number) {
  *device = number;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice) {
  for (std::size_t i = 0; i < sizeof uuid->bytes; ++i) uuid->bytes[i] = static_cast<char>(16 * i);
  return CUDA_SUCCESS;
}
}
