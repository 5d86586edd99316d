#include "engine/optimizer/flat_optimizer.h"

#include <cmath>

#include "engine/base/check.h"
#include "kernels/kernels.h"
#include "kernels/optimizer.h"

namespace swarmline {
namespace {

template <typename T>
kernels::MomentStep<T> moment_step(const OptimizerSection& options, const StepScalars& scalars) {
  return {.gradient_scale = static_cast<T>(scalars.clip_scale),
          .beta1 = static_cast<T>(options.beta1),
          .one_minus_beta1 = static_cast<T>(1 - options.beta1),
          .beta2 = static_cast<T>(options.beta2),
          .one_minus_beta2 = static_cast<T>(1 - options.beta2),
          .inverse_bias1 = static_cast<T>(1 / scalars.bias_correction1),
          .inverse_sqrt_bias2 = static_cast<T>(1 / std::sqrt(scalars.bias_correction2)),
          .eps = static_cast<T>(options.eps)};
}

// A slot's part of the four flat buffers.
template <typename T>
struct SlotViews {
  const T* gradients;
  T* m;
  T* v;
  T* parameters;
  std::size_t n;
  bool decay;
};

template <typename T>
void step_adamw(const OptimizerSection& options, const StepScalars& scalars,
                const SlotViews<T>& slot) {
  const double decay = slot.decay ? options.weight_decay : 0.0;
  const kernels::AdamwStep<T> step{
      .moments = moment_step<T>(options, scalars),
      .keep = static_cast<T>(1 - scalars.learning_rate * decay),
      .rate = static_cast<T>(scalars.learning_rate / scalars.bias_correction1)};
  kernels::adamw(step, slot.gradients, slot.m, slot.v, slot.parameters, slot.n);
}

template <typename T>
void step_lamb(const OptimizerSection& options, const StepScalars& scalars,
               const SlotViews<T>& slot) {
  const kernels::LambStep<T> step{.moments = moment_step<T>(options, scalars),
                                  .decay = static_cast<T>(slot.decay ? options.weight_decay : 0.0)};
  const kernels::LambNorms squares =
      kernels::lamb_moments(step, slot.gradients, slot.m, slot.v, slot.parameters, slot.n);
  const double parameter_norm = std::sqrt(squares.parameters);
  const double update_norm = std::sqrt(squares.update);
  const double trust = parameter_norm == 0 || update_norm == 0 ? 1.0 : parameter_norm / update_norm;
  kernels::lamb_apply(step, static_cast<T>(scalars.learning_rate * trust), slot.m, slot.v,
                      slot.parameters, slot.n);
}

struct FlatViews {
  const std::byte* gradients;
  std::byte* m;
  std::byte* v;
  std::byte* parameters;
};

template <typename T>
void step_slot(const OptimizerSection& options, const StepScalars& scalars, const FlatViews& flat,
               const ParameterSlot& slot) {
  const SlotViews<T> views{.gradients = reinterpret_cast<const T*>(flat.gradients) + slot.offset,
                           .m = reinterpret_cast<T*>(flat.m) + slot.offset,
                           .v = reinterpret_cast<T*>(flat.v) + slot.offset,
                           .parameters = reinterpret_cast<T*>(flat.parameters) + slot.offset,
                           .n = slot.elements,
                           .decay = slot.decay};
  switch (options.kind) {
    case OptimizerKind::kAdamW:
      return step_adamw(options, scalars, views);
    case OptimizerKind::kLamb:
      return step_lamb(options, scalars, views);
  }
}

}  // namespace

FlatOptimizer::FlatOptimizer(const OptimizerSection& options, const ParameterLayout& layout)
    : options_(options),
      layout_(layout),
      m_(Buffer::zeroed(layout.bytes())),
      v_(Buffer::zeroed(layout.bytes())) {
  SWARMLINE_CHECK(layout.dtype == DType::kF32 || layout.dtype == DType::kF64);
  for (const ParameterSlot& slot : layout_.slots) {
    SWARMLINE_CHECK(slot.offset <= layout_.elements &&
                    slot.elements <= layout_.elements - slot.offset);
  }
}

void FlatOptimizer::step(const StepScalars& scalars, BytesView gradients, MutableBytes parameters) {
  SWARMLINE_CHECK(gradients.size() == layout_.bytes() && parameters.size() == layout_.bytes());
  SWARMLINE_CHECK(scalars.bias_correction1 > 0 && scalars.bias_correction2 > 0);
  const FlatViews flat{.gradients = gradients.data(),
                       .m = m_.data(),
                       .v = v_.data(),
                       .parameters = parameters.data()};
  for (const ParameterSlot& slot : layout_.slots) {
    if (layout_.dtype == DType::kF32) {
      step_slot<float>(options_, scalars, flat, slot);
    } else {
      step_slot<double>(options_, scalars, flat, slot);
    }
  }
}

double sum_of_squares(BytesView values, DType dtype) {
  SWARMLINE_CHECK(dtype == DType::kF32 || dtype == DType::kF64);
  SWARMLINE_CHECK(values.size() % size_bytes(dtype) == 0);
  const std::size_t n = values.size() / size_bytes(dtype);
  return dtype == DType::kF32
             ? kernels::sum_of_squares(reinterpret_cast<const float*>(values.data()), n)
             : kernels::sum_of_squares(reinterpret_cast<const double*>(values.data()), n);
}

}  // namespace swarmline
