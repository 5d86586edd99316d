// One step of AdamW and LAMB on one tensor; the rules of kernels.h hold.
//   Not finite: a gradient that is NaN or infinite makes its element's moments and parameter so,
//               for good. The engine never comes to that: a commit whose reduced gradient is not
//               finite is a skip.
#pragma once

#include <cstddef>
#include <cstdint>

namespace swarmline::kernels {

// Constants of one optimizer step, each computed in double and rounded once to T (flat_optimizer.cc
// makes them).
template <typename T>
struct MomentStep {
  T gradient_scale;  // clipping
  T beta1, one_minus_beta1;
  T beta2, one_minus_beta2;
  T inverse_bias1;       // 1 / (1 - beta1^t)
  T inverse_sqrt_bias2;  // 1 / sqrt(1 - beta2^t)
  T eps;
};

// AdamW: moments, then p = p * keep - rate * m / (sqrt(v) * inverse_sqrt_bias2 + eps).
template <typename T>
struct AdamwStep {
  MomentStep<T> moments;
  T keep;  // 1 - learning rate * weight decay
  T rate;  // learning rate * inverse_bias1
};
void adamw(const AdamwStep<float>& step, const float* gradients, float* m, float* v,
           float* parameters, std::size_t n);
void adamw(const AdamwStep<double>& step, const double* gradients, double* m, double* v,
           double* parameters, std::size_t n);

// LAMB in two passes over one tensor. The first moves the moments and returns the squared norms (in
// the order of sum_of_squares) of the parameters and of update = m * inverse_bias1 / (sqrt(v) *
// inverse_sqrt_bias2 + eps) + decay * p; the second makes the same update again and applies p = p -
// rate * update.
struct LambNorms {
  double parameters = 0;
  double update = 0;
};
template <typename T>
struct LambStep {
  MomentStep<T> moments;
  T decay;  // weight decay
};
LambNorms lamb_moments(const LambStep<float>& step, const float* gradients, float* m, float* v,
                       const float* parameters, std::size_t n);
LambNorms lamb_moments(const LambStep<double>& step, const double* gradients, double* m, double* v,
                       const double* parameters, std::size_t n);
void lamb_apply(const LambStep<float>& step, float rate, const float* m, const float* v,
                float* parameters, std::size_t n);
void lamb_apply(const LambStep<double>& step, double rate, const double* m, const double* v,
                double* parameters, std::size_t n);

// The same steps on the 8-bit state of format/adam8.h: n codes and ceil(n / kMomentBlock) scales of
// each moment. LAMB's first pass leaves the state alone and its second moves it, so that the update
// is made of fp32 moments in both.
inline constexpr std::size_t kMomentBlock = 256;
struct Moments8 {
  std::uint8_t* m = nullptr;
  float* m_scales = nullptr;
  std::uint8_t* v = nullptr;
  float* v_scales = nullptr;
};
void adamw8(const AdamwStep<float>& step, const float* gradients, const Moments8& state,
            float* parameters, std::size_t n);
// The first moment alone, for a step that is made on whole tensors.
void decode_first_moment(const Moments8& state, std::size_t n, float* m);
void encode_first_moment(const float* m, std::size_t n, const Moments8& state);
LambNorms lamb8_norms(const LambStep<float>& step, const float* gradients, const Moments8& state,
                      const float* parameters, std::size_t n);
void lamb8_apply(const LambStep<float>& step, float rate, const float* gradients,
                 const Moments8& state, float* parameters, std::size_t n);

}  // namespace swarmline::kernels
