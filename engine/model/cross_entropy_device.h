// Cross entropy of each row of logits on a CUDA device, and its gradient, each in one pass over the
// logits: log-probabilities are never written.
//   Shapes:  logits (rows, width) row-major; targets (rows), below 0: not counted; losses (rows)
//            in nats, 0 where not counted; log_sums (rows), of the exponentials of a row.
//   Dtypes:  logits and gradient fp32 or bf16, computed in fp32 in an order that width alone
//            decides; losses fp64.
//   Thread:  enqueued on `stream`, pointers to device memory. C++20, for nvcc.
//   Errors:  false: the launch failed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace swarmline::cuda {

enum class LogitsType : std::uint8_t { kF32, kBF16 };

struct CrossEntropyRows {
  LogitsType type = LogitsType::kBF16;
  std::size_t rows = 0;
  std::size_t width = 0;
  const void* logits = nullptr;
  const std::int32_t* targets = nullptr;
  float* log_sums = nullptr;
};
const char* cross_entropy(const CrossEntropyRows& rows, double* losses, void* stream);
// gradient = *factor times that of the sum of the losses.
const char* cross_entropy_gradient(const CrossEntropyRows& rows, const double* factor,
                                   void* gradient, void* stream);

}  // namespace swarmline::cuda
