// CUDA twins of what codec topk does (compression/sparse.h), straight into and out of the tiles of
// a wire buffer: per tile of 65536 elements the positions (u16, ascending) and values (fp32) of the
// elements of largest magnitude, of equals the lower index; NaN counts as above infinity.
//   Shapes:    device pointers; `values` n floats; `tiles` as compression/wire.h lays topk out:
//              [positions, padded to 64 bytes][values], 8 bytes of checksum, a multiple of 64.
//              `kept` in 1..65536: of a full tile; a last tile of m elements keeps
//              ceil(kept m / 65536) of them.
//   Stream:    all is queued on `stream`; nothing is allocated and nothing waits.
//   Errors:    the launch's cudaError_t; cudaErrorInvalidValue for `kept` out of range.
//   Non-finite: `non_finite` (device, may be null) is set to 1 where a value that is kept is not
//              finite, else left alone. Gaps and checksums are the host's: compression's
//              seal_wire().
#pragma once

#include <cstddef>
#include <cstdint>
#include <cuda_runtime.h>

namespace swarmline::kernels::cuda {

cudaError_t select_largest_wire(const float* values, std::size_t n, std::uint32_t kept, void* tiles,
                                std::uint32_t* non_finite, cudaStream_t stream);
// All n values: those that were kept, and 0. Positions ascend within their tiles, as somebody has
// checked.
cudaError_t scatter_wire(const void* tiles, std::size_t n, std::uint32_t kept, float* values,
                         std::uint32_t* non_finite, cudaStream_t stream);
std::size_t topk_tiles_bytes(std::size_t n, std::uint32_t kept);

}  // namespace swarmline::kernels::cuda
