#include "engine/optimizer/flat_optimizer.h"

#include <cmath>
#include <utility>

#include "base/check.h"
#include "engine/optimizer/muon.h"
#include "engine/optimizer/step_constants.h"
#include "kernels/digest.h"
#include "kernels/kernels.h"

namespace swarmline {
namespace {

double trust_ratio(const kernels::LambNorms& squares) {
  const double parameter_norm = std::sqrt(squares.parameters);
  const double update_norm = std::sqrt(squares.update);
  return parameter_norm == 0 || update_norm == 0 ? 1.0 : parameter_norm / update_norm;
}

struct FlatViews {
  const std::byte* gradients;
  std::byte* m;
  std::byte* v;
  std::byte* parameters;
};

// A slot's part of the flat buffers.
template <typename T>
struct SlotViews {
  SlotViews(const FlatViews& flat, const ParameterSlot& slot, const SlotState& state)
      : gradients(reinterpret_cast<const T*>(flat.gradients) + slot.offset),
        parameters(reinterpret_cast<T*>(flat.parameters) + slot.offset),
        m(reinterpret_cast<T*>(flat.m + state.first.values_at)),
        v(reinterpret_cast<T*>(flat.v + state.second.values_at)),
        n(slot.elements) {}
  const T* gradients;
  T* parameters;
  T* m;
  T* v;  // not of a matrix that Muon steps
  std::size_t n;
};

kernels::Moments8 codes_of(const FlatViews& flat, const SlotState& state) {
  return {.m = reinterpret_cast<std::uint8_t*>(flat.m + state.first.values_at),
          .m_scales = reinterpret_cast<float*>(flat.m + state.first.scales_at),
          .v = reinterpret_cast<std::uint8_t*>(flat.v + state.second.values_at),
          .v_scales = reinterpret_cast<float*>(flat.v + state.second.scales_at)};
}

template <typename T>
void step_values(const OptimizerSection& options, const StepScalars& scalars, bool decays,
                 const SlotViews<T>& slot) {
  if (options.kind != OptimizerKind::kLamb) {
    return kernels::adamw(adamw_step<T>(options, scalars, decays), slot.gradients, slot.m, slot.v,
                          slot.parameters, slot.n);
  }
  const kernels::LambStep<T> step = lamb_step<T>(options, scalars, decays);
  const kernels::LambNorms squares =
      kernels::lamb_moments(step, slot.gradients, slot.m, slot.v, slot.parameters, slot.n);
  kernels::lamb_apply(step, static_cast<T>(scalars.learning_rate * trust_ratio(squares)), slot.m,
                      slot.v, slot.parameters, slot.n);
}

void step_codes(const OptimizerSection& options, const StepScalars& scalars, bool decays,
                const kernels::Moments8& codes, const SlotViews<float>& slot) {
  if (options.kind != OptimizerKind::kLamb) {
    return kernels::adamw8(adamw_step<float>(options, scalars, decays), slot.gradients, codes,
                           slot.parameters, slot.n);
  }
  const kernels::LambStep<float> step = lamb_step<float>(options, scalars, decays);
  const kernels::LambNorms squares =
      kernels::lamb8_norms(step, slot.gradients, codes, slot.parameters, slot.n);
  kernels::lamb8_apply(step, static_cast<float>(scalars.learning_rate * trust_ratio(squares)),
                       slot.gradients, codes, slot.parameters, slot.n);
}

MatrixShape shape_of(const ParameterSlot& slot) {
  return {.rows = static_cast<std::size_t>(slot.shape[0]),
          .columns = static_cast<std::size_t>(slot.shape[1])};
}

template <typename T>
void step_matrix(const OptimizerSection& options, const StepScalars& scalars,
                 const ParameterSlot& slot, const SlotViews<T>& views, std::byte* scratch) {
  const MatrixShape shape = shape_of(slot);
  apply_muon(muon_step<T>(options, scalars, slot.decay, shape), shape, views.gradients, views.m,
             views.parameters, reinterpret_cast<T*>(scratch));
}

// The momentum is decoded, moved and used in fp32, and coded again.
void step_coded_matrix(const OptimizerSection& options, const StepScalars& scalars,
                       const ParameterSlot& slot, const kernels::Moments8& codes,
                       SlotViews<float> views, std::byte* scratch) {
  views.m = reinterpret_cast<float*>(scratch);
  kernels::decode_first_moment(codes, views.n, views.m);
  step_matrix(options, scalars, slot, views, scratch + views.n * sizeof(float));
  kernels::encode_first_moment(views.m, views.n, codes);
}

}  // namespace

FlatOptimizer::FlatOptimizer(const OptimizerSection& options, const ParameterLayout& layout,
                             std::unique_ptr<DeviceOptimizer> device)
    : options_(options),
      layout_(layout),
      state_(make_state_layout(options, layout)),
      device_(std::move(device)) {
  SWARMLINE_CHECK(layout.dtype == DType::kF32 || layout.dtype == DType::kF64);
  for (const ParameterSlot& slot : layout_.slots) {
    SWARMLINE_CHECK(slot.offset <= layout_.elements &&
                    slot.elements <= layout_.elements - slot.offset);
  }
  if (device_ == nullptr) {
    m_ = Buffer::zeroed(state_.first_bytes);
    v_ = Buffer::zeroed(state_.second_bytes);
  }
}

Result<void> FlatOptimizer::step(const StepScalars& scalars, BytesView gradients,
                                 MutableBytes parameters) {
  SWARMLINE_CHECK(device_ == nullptr);
  SWARMLINE_CHECK(gradients.size() == layout_.bytes() && parameters.size() == layout_.bytes());
  SWARMLINE_CHECK(scalars.bias_correction1 > 0 && scalars.bias_correction2 > 0);
  const FlatViews flat{.gradients = gradients.data(),
                       .m = m_.data(),
                       .v = v_.data(),
                       .parameters = parameters.data()};
  Buffer scratch(muon_scratch_bytes(options_, layout_));
  for (std::size_t i = 0; i < layout_.slots.size(); ++i) {
    const ParameterSlot& slot = layout_.slots[i];
    const SlotState& state = state_.slots[i];
    const bool is_matrix = is_muon_matrix(options_, slot);
    if (layout_.dtype == DType::kF64) {
      const SlotViews<double> views(flat, slot, state);
      if (is_matrix) {
        step_matrix(options_, scalars, slot, views, scratch.data());
      } else {
        step_values(options_, scalars, slot.decay, views);
      }
    } else if (is_matrix && state.coded) {
      step_coded_matrix(options_, scalars, slot, codes_of(flat, state),
                        SlotViews<float>(flat, slot, state), scratch.data());
    } else if (is_matrix) {
      step_matrix(options_, scalars, slot, SlotViews<float>(flat, slot, state), scratch.data());
    } else if (state.coded) {
      step_codes(options_, scalars, slot.decay, codes_of(flat, state),
                 SlotViews<float>(flat, slot, state));
    } else {
      step_values(options_, scalars, slot.decay, SlotViews<float>(flat, slot, state));
    }
  }
  return {};
}

Result<void> FlatOptimizer::step_there(const StepScalars& scalars, DeviceAddress gradients,
                                       DeviceAddress parameters) {
  SWARMLINE_CHECK(device_ != nullptr);
  SWARMLINE_CHECK(scalars.bias_correction1 > 0 && scalars.bias_correction2 > 0);
  m_ = Buffer();
  v_ = Buffer();
  return device_->step(scalars, gradients, parameters);
}

Result<MutableBytes> FlatOptimizer::moment(Moment moment) {
  Buffer& buffer = moment == Moment::kFirst ? m_ : v_;
  if (device_ != nullptr && buffer.empty() && bytes_of(moment) > 0) {
    Buffer copy(bytes_of(moment));
    SWARMLINE_TRY(device_->read_state(moment, 0, copy.bytes()));
    buffer = std::move(copy);
  }
  return buffer.bytes();
}

Result<void> FlatOptimizer::moments_changed() {
  if (device_ == nullptr) return {};
  if (!m_.empty()) SWARMLINE_TRY(device_->write_state(Moment::kFirst, 0, m_.bytes()));
  if (!v_.empty()) SWARMLINE_TRY(device_->write_state(Moment::kSecond, 0, v_.bytes()));
  return {};
}

Result<void> FlatOptimizer::add_state_to(RollingHash& hash) const {
  for (const Moment moment : {Moment::kFirst, Moment::kSecond}) {
    if (device_ == nullptr) {
      hash.add(kernels::digest((moment == Moment::kFirst ? m_ : v_).bytes()));
      continue;
    }
    const auto there = device_->digest_state(moment);
    if (!there) return std::unexpected(there.error());
    hash.add(*there);
  }
  return {};
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
