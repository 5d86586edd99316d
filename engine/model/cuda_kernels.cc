// The entry of libswarmline_cuda.so for engine/model.
#include "engine/model/device_kernels.h"

extern "C" {
extern const swarmline::DeviceKernels swarmline_cuda_kernels;
const swarmline::DeviceKernels swarmline_cuda_kernels = {
    .make_cublaslt = swarmline::cuda::make_cublaslt,
    .quantize_rows = swarmline::cuda::quantize_rows,
    .apply_dropout = swarmline::cuda::apply_dropout,
    .cross_entropy = swarmline::cuda::cross_entropy,
    .cross_entropy_gradient = swarmline::cuda::cross_entropy_gradient,
    .swiglu = swarmline::cuda::swiglu,
    .swiglu_gradient = swarmline::cuda::swiglu_gradient,
    .microseconds = swarmline::cuda::microseconds,
    .lock_pages = swarmline::cuda::lock_pages,
    .unlock_pages = swarmline::cuda::unlock_pages,
    .free_memory = swarmline::cuda::free_memory,
    .set_on_full = swarmline::kernels::cuda::set_on_full,
    .choose_device = swarmline::kernels::cuda::choose_device,
    .device_fault = swarmline::kernels::cuda::device_fault,
};
}
