// What a stage on a CUDA device computes beside libtorch: an entry of libswarmline_cuda.so
// (kernels/cuda_library.h).
//   Thread, errors: those of each function's header.
#pragma once

#include "base/result.h"
#include "engine/model/cross_entropy_device.h"
#include "engine/model/cublaslt.h"
#include "engine/model/dropout_device.h"
#include "engine/model/page_lock.h"
#include "engine/model/row_codes.h"
#include "engine/model/swiglu_device.h"
#include "kernels/cuda/device_state.h"

namespace swarmline {

struct DeviceKernels {
  decltype(cuda::make_cublaslt)* make_cublaslt;
  decltype(cuda::quantize_rows)* quantize_rows;
  decltype(cuda::apply_dropout)* apply_dropout;
  decltype(cuda::cross_entropy)* cross_entropy;
  decltype(cuda::cross_entropy_gradient)* cross_entropy_gradient;
  decltype(cuda::swiglu)* swiglu;
  decltype(cuda::swiglu_gradient)* swiglu_gradient;
  decltype(cuda::microseconds)* microseconds;
  decltype(cuda::lock_pages)* lock_pages;
  decltype(cuda::unlock_pages)* unlock_pages;
  decltype(cuda::free_memory)* free_memory;
  decltype(kernels::cuda::set_on_full)* set_on_full;
  decltype(kernels::cuda::choose_device)* choose_device;
  decltype(kernels::cuda::device_fault)* device_fault;
};
inline constexpr const char* kDeviceKernelsEntry = "swarmline_cuda_kernels";

// kDevice: as kernels/cuda_library.h says.
Result<const DeviceKernels*> device_kernels();

}  // namespace swarmline
