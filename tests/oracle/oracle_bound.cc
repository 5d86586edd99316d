#include "tests/oracle/oracle_bound.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "base/check.h"

namespace swarmline::oracle {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double peak(std::span<const double> values) {
  double largest = 0;
  for (const double value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

// Infinite where they can't be compared.
double distance(std::span<const double> a, std::span<const double> b) {
  if (a.size() != b.size()) return kInfinity;
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(a[i] - b[i]);
    if (!std::isfinite(difference)) return kInfinity;
    largest = std::max(largest, difference);
  }
  return largest;
}

double ulp(DType dtype) {
  SWARMLINE_CHECK(dtype == DType::kF32 || dtype == DType::kF64);
  return dtype == DType::kF32 ? std::numeric_limits<float>::epsilon()
                              : std::numeric_limits<double>::epsilon();
}

// Raises each part of `to` to that of `other`.
void raise(PerPart& to, const PerPart& other) {
  for (const auto& [name, value] : other.tensors) {
    to.tensors[name] = std::max(to.tensors[name], value);
  }
  to.losses.resize(std::max(to.losses.size(), other.losses.size()));
  for (std::size_t step = 0; step < other.losses.size(); ++step) {
    to.losses[step] = std::max(to.losses[step], other.losses[step]);
  }
  to.eval_loss = std::max(to.eval_loss, other.eval_loss);
}

PerPart noise_of(const Trace& reference, std::span<const Trace> permuted) {
  SWARMLINE_CHECK(!permuted.empty());
  PerPart noise;
  for (std::size_t i = 0; i < permuted.size(); ++i) {
    raise(noise, distances(reference, permuted[i]));
    for (std::size_t j = 0; j < i; ++j) raise(noise, distances(permuted[j], permuted[i]));
  }
  return noise;
}

double bounded_by_noise(double noise, double peak_value, const Trace& reference) {
  const double ulps = kFloorUlpsPerStep * static_cast<double>(reference.losses.size());
  return std::max(kNoiseFactor * noise, ulps * ulp(reference.dtype) * peak_value);
}

void consider(Comparison& worst, std::string where, double difference, double bound) {
  const double ratio = difference == 0 ? 0 : difference / bound;
  if (ratio < worst.ratio || (ratio == worst.ratio && !worst.where.empty())) return;
  worst = {.ratio = ratio, .where = std::move(where), .difference = difference, .bound = bound};
}

}  // namespace

std::vector<double> to_doubles(BytesView bytes, DType dtype) {
  SWARMLINE_CHECK(dtype == DType::kF32 || dtype == DType::kF64);
  if (dtype == DType::kF64) {
    const auto* values = reinterpret_cast<const double*>(bytes.data());
    return {values, values + bytes.size() / sizeof(double)};
  }
  const auto* values = reinterpret_cast<const float*>(bytes.data());
  return {values, values + bytes.size() / sizeof(float)};
}

bool has_zero_true_gradient(const std::string& tensor, const ModelSection& model) {
  return model.positions != PositionKind::kRotary && !model.qk_norm &&
         tensor.ends_with(".attention.k.bias");
}

Bound measured_bound(const ModelSection& model, const Trace& reference,
                     std::span<const Trace> permuted) {
  const PerPart noise = noise_of(reference, permuted);
  Bound bound;
  for (const auto& [name, values] : reference.tensors) {
    bound.tensors[name] = has_zero_true_gradient(name, model)
                              ? kNoiseFactor * noise.tensors.at(name)
                              : bounded_by_noise(noise.tensors.at(name), peak(values), reference);
  }
  for (std::size_t step = 0; step < reference.losses.size(); ++step) {
    bound.losses.push_back(
        bounded_by_noise(noise.losses[step], std::abs(reference.losses[step]), reference));
  }
  bound.eval_loss = bounded_by_noise(noise.eval_loss, std::abs(reference.eval_loss), reference);
  return bound;
}

Bound relative_bound(const ModelSection& model, const Trace& reference,
                     std::span<const Trace> permuted, double relative) {
  const PerPart noise = noise_of(reference, permuted);
  Bound bound;
  for (const auto& [name, values] : reference.tensors) {
    bound.tensors[name] = has_zero_true_gradient(name, model)
                              ? kNoiseFactor * noise.tensors.at(name)
                              : relative * peak(values);
  }
  for (const double loss : reference.losses) bound.losses.push_back(relative * std::abs(loss));
  bound.eval_loss = relative * std::abs(reference.eval_loss);
  return bound;
}

Distances distances(const Trace& reference, const Trace& run) {
  Distances apart;
  for (const auto& [name, values] : run.tensors) {
    if (!reference.tensors.contains(name)) apart.tensors[name] = kInfinity;
  }
  for (const auto& [name, values] : reference.tensors) {
    const auto found = run.tensors.find(name);
    apart.tensors[name] = found == run.tensors.end() ? kInfinity : distance(values, found->second);
  }
  const std::size_t steps = std::max(reference.losses.size(), run.losses.size());
  apart.losses.assign(steps, kInfinity);
  for (std::size_t step = 0; step < std::min(reference.losses.size(), run.losses.size()); ++step) {
    apart.losses[step] =
        distance(std::span(&reference.losses[step], 1), std::span(&run.losses[step], 1));
  }
  apart.eval_loss = distance(std::span(&reference.eval_loss, 1), std::span(&run.eval_loss, 1));
  return apart;
}

Trace without_furthest(const Trace& reference, Trace run, double share) {
  for (auto& [name, values] : run.tensors) {
    const std::vector<double>& expected = reference.tensors.at(name);
    std::vector<std::size_t> order(values.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    const auto apart = [&](std::size_t i) { return std::abs(values[i] - expected[i]); };
    std::ranges::sort(order, std::ranges::greater{}, apart);
    const auto others = static_cast<std::size_t>(share * static_cast<double>(order.size()));
    for (std::size_t i = 0; i < others; ++i) values[order[i]] = expected[order[i]];
  }
  return run;
}

std::string Comparison::sentence() const {
  return fmt::format("{}: {:.3g} apart, allowed {:.3g}: {:.3g} x the bound", where, difference,
                     bound, ratio);
}

Comparison judge(const Distances& distances, const Bound& bound) {
  Comparison worst;
  for (const auto& [name, apart] : distances.tensors) {
    const auto allowed = bound.tensors.find(name);
    if (allowed == bound.tensors.end()) {
      consider(worst, name, kInfinity, 0);
    } else {
      consider(worst, name, apart, allowed->second);
    }
  }
  for (const auto& [name, allowed] : bound.tensors) {
    if (!distances.tensors.contains(name)) consider(worst, name, kInfinity, allowed);
  }
  if (distances.losses.size() != bound.losses.size()) {
    consider(worst, "number of losses", kInfinity, 0);
    return worst;
  }
  for (std::size_t step = 0; step < bound.losses.size(); ++step) {
    consider(worst, fmt::format("loss of step {}", step), distances.losses[step],
             bound.losses[step]);
  }
  consider(worst, "evaluation", distances.eval_loss, bound.eval_loss);
  return worst;
}

Comparison compare(const Trace& reference, const Trace& run, const Bound& bound) {
  return judge(distances(reference, run), bound);
}

}  // namespace swarmline::oracle
