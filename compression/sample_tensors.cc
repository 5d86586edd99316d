#include "compression/sample_tensors.h"

#include <algorithm>
#include <cmath>

#include "base/rng.h"

namespace swarmline {
namespace {

constexpr std::size_t kOutliers = 7;  // channels of kSampleRowChannels
constexpr double kOutlierMin = 20, kOutlierMax = 60;
constexpr std::size_t kMassiveEvery = 64;    // rows
constexpr std::size_t kMassiveOutliers = 2;  // of a massive row
constexpr double kMassive = 1000;
constexpr std::size_t kGradientRow = 512;
constexpr double kRowSigma = 2;  // of the logarithm of a row's factor

// Student's t with 3 degrees of freedom: a normal over the root of a mean of three squares.
double heavy_tailed(Rng& rng) {
  const double numerator = rng.normal();
  double squares = 0;
  for (int i = 0; i < 3; ++i) {
    const double value = rng.normal();
    squares += value * value;
  }
  return numerator / std::sqrt(squares / 3);
}

struct Outlier {
  std::size_t channel = 0;
  double factor = 1;
};

std::array<Outlier, kOutliers> draw_outliers(Rng rng) {
  std::array<Outlier, kOutliers> outliers;
  for (std::size_t i = 0; i < kOutliers; ++i) {
    // One in each seventh of the channels, so that no two are the same.
    const std::size_t from = kSampleRowChannels * i / kOutliers;
    const std::size_t to = kSampleRowChannels * (i + 1) / kOutliers;
    outliers[i] = {.channel = from + static_cast<std::size_t>(rng.below(to - from)),
                   .factor = kOutlierMin + (kOutlierMax - kOutlierMin) * rng.uniform()};
  }
  return outliers;
}

void amplify(std::vector<float>& values, const std::array<Outlier, kOutliers>& outliers,
             bool has_massive_tokens) {
  for (std::size_t row = 0; row * kSampleRowChannels < values.size(); ++row) {
    const bool is_massive = has_massive_tokens && row % kMassiveEvery == kMassiveEvery / 2;
    for (std::size_t i = 0; i < kOutliers; ++i) {
      const std::size_t at = row * kSampleRowChannels + outliers[i].channel;
      if (at >= values.size()) continue;
      const double factor = is_massive && i < kMassiveOutliers ? kMassive : outliers[i].factor;
      values[at] = static_cast<float>(values[at] * factor);
    }
  }
}

}  // namespace

std::string_view name_of(SampleTensor kind) {
  switch (kind) {
    case SampleTensor::kNormal:
      return "normal";
    case SampleTensor::kHeavyTailed:
      return "heavy-tailed";
    case SampleTensor::kOutlierChannels:
      return "outlier-channels";
    case SampleTensor::kMassiveTokens:
      return "massive-tokens";
    case SampleTensor::kGradients:
      return "gradients";
  }
  return "";
}

std::optional<SampleTensor> sample_tensor_from_name(std::string_view name) {
  const auto* found = std::ranges::find_if(
      kSampleTensors, [&](SampleTensor kind) { return name_of(kind) == name; });
  if (found == kSampleTensors.end()) return std::nullopt;
  return *found;
}

std::vector<float> make_sample(SampleTensor kind, std::size_t n, std::uint64_t seed) {
  const Rng root = Rng(seed).split(name_of(kind));
  Rng values_of = root.split("values"), rows_of = root.split("rows");
  std::vector<float> values(n);
  double factor = 1;
  for (std::size_t i = 0; i < n; ++i) {
    if (kind == SampleTensor::kGradients && i % kGradientRow == 0) {
      factor = std::exp(kRowSigma * rows_of.normal());
    }
    const bool is_heavy = kind == SampleTensor::kHeavyTailed || kind == SampleTensor::kGradients;
    values[i] =
        static_cast<float>((is_heavy ? heavy_tailed(values_of) : values_of.normal()) * factor);
  }
  if (kind == SampleTensor::kOutlierChannels || kind == SampleTensor::kMassiveTokens) {
    amplify(values, draw_outliers(root.split("outliers")), kind == SampleTensor::kMassiveTokens);
  }
  return values;
}

}  // namespace swarmline
