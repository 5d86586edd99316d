// What the CUDA quantization kernels must do, for the two ways to run them: their bodies on the
// host (cuda_emulation_test) and on a device (cuda_quantize_test). Every case compares with the CPU
// functions of kernels/quantize.h, bit for bit.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/quantize.h"

namespace swarmline::testing {

// How rows are normalised: kernels/cuda/quantize.cuh.
struct NormCase {
  bool is_layer = false;
  float eps = 1e-5F;
  const float* weight = nullptr;
  const float* bias = nullptr;
};

// The functions of kernels/cuda/quantize.cuh on host memory; they return what `non_finite` says.
// Buffers may begin anywhere their element types may: a device gets the same misalignment.
class CudaQuantizer {
 public:
  virtual ~CudaQuantizer() = default;
  virtual bool quantize(const kernels::QuantSpec& spec, kernels::FloatKind source,
                        const void* values, std::size_t n, const kernels::StochasticKey* key,
                        void* scales, std::uint8_t* codes) = 0;
  virtual bool dequantize(const kernels::QuantSpec& spec, const void* scales,
                          const std::uint8_t* codes, std::size_t n, kernels::FloatKind target,
                          void* values) = 0;
  virtual bool feedback(const kernels::QuantSpec& spec, const float* values, const float* current,
                        float* next, std::size_t n, const kernels::StochasticKey* key,
                        void* tiles) = 0;
  virtual bool quantize_wire(const kernels::QuantSpec& spec, kernels::FloatKind source,
                             const void* values, std::size_t n, const kernels::StochasticKey* key,
                             void* tiles) = 0;
  virtual bool dequantize_wire(const kernels::QuantSpec& spec, const void* tiles, std::size_t n,
                               kernels::FloatKind target, void* values) = 0;
  virtual bool normalize(const kernels::QuantSpec& spec, const NormCase& norm,
                         kernels::FloatKind source, const void* values, std::size_t rows,
                         std::size_t width, void* scales, std::uint8_t* codes) = 0;
};

// Each fails through GoogleTest. `large`: sizes of a million as well.
void check_sizes(CudaQuantizer& cuda, bool large);
void check_stochastic(CudaQuantizer& cuda);
void check_non_finite(CudaQuantizer& cuda);
void check_foreign_codes(CudaQuantizer& cuda);  // any bytes as codes and scales
void check_feedback(CudaQuantizer& cuda);
void check_wire(CudaQuantizer& cuda);
void check_norms(CudaQuantizer& cuda);
// lin8 and both dyn8 over every `stride`-th float, against the plain reference (exhaustive.h).
void check_floats(CudaQuantizer& cuda, std::uint32_t stride);

}  // namespace swarmline::testing
