#include "kernels/optimizer.h"

#include "kernels/cpu/table.h"

namespace swarmline::kernels {
namespace {

const KernelTable& best() {
  return *available_tables().front();
}

}  // namespace

void adamw(const AdamwStep<float>& step, const float* gradients, float* m, float* v,
           float* parameters, std::size_t n) {
  best().f32.adamw(step, gradients, m, v, parameters, n);
}
void adamw(const AdamwStep<double>& step, const double* gradients, double* m, double* v,
           double* parameters, std::size_t n) {
  best().f64.adamw(step, gradients, m, v, parameters, n);
}
LambNorms lamb_moments(const LambStep<float>& step, const float* gradients, float* m, float* v,
                       const float* parameters, std::size_t n) {
  return best().f32.lamb_moments(step, gradients, m, v, parameters, n);
}
LambNorms lamb_moments(const LambStep<double>& step, const double* gradients, double* m, double* v,
                       const double* parameters, std::size_t n) {
  return best().f64.lamb_moments(step, gradients, m, v, parameters, n);
}
void lamb_apply(const LambStep<float>& step, float rate, const float* m, const float* v,
                float* parameters, std::size_t n) {
  best().f32.lamb_apply(step, rate, m, v, parameters, n);
}
void lamb_apply(const LambStep<double>& step, double rate, const double* m, const double* v,
                double* parameters, std::size_t n) {
  best().f64.lamb_apply(step, rate, m, v, parameters, n);
}

}  // namespace swarmline::kernels
