#include "compression/codec_choice.h"

#include <algorithm>
#include <array>

namespace swarmline {
namespace {

constexpr std::array kCandidates = {CodecKind::kNone, CodecKind::kBf16, CodecKind::kLin8,
                                    CodecKind::kH8,   CodecKind::kE4M3, CodecKind::kInt4,
                                    CodecKind::kH4};

}  // namespace

std::span<const CodecKind> auto_candidates() {
  return kCandidates;
}

double CodecChooser::pace(const CodecTrial& trial, const BoundaryLoad& load) {
  const double codec = trial.seconds_per_element * static_cast<double>(load.elements);
  const double devices = load.device_seconds + codec / std::max(load.devices, 1U);
  if (load.bytes_per_second <= 0) return devices;
  const auto bytes = static_cast<double>(encoded_bytes(trial.codec, load.elements, load.dtype));
  return std::max(devices, bytes / (load.bytes_per_second * std::max(load.links, 1U)));
}

CodecSpec CodecChooser::choose(const CodecSpec& present, const BoundaryLoad& load,
                               const std::vector<CodecTrial>& trials) const {
  std::vector<CodecTrial> fit = {CodecTrial{}};  // none
  for (const CodecTrial& trial : trials)
    if (trial.codec.kind != CodecKind::kNone && trial.relative_error <= error_budget_)
      fit.push_back(trial);
  double best = pace(fit.front(), load);
  for (const CodecTrial& trial : fit) best = std::min(best, pace(trial, load));
  const CodecTrial* exact = nullptr;
  const CodecTrial* now = nullptr;
  for (const CodecTrial& trial : fit) {
    if (trial.codec == present) now = &trial;
    const bool close = pace(trial, load) <= kCloseEnough * best;
    if (close && (!exact || trial.relative_error < exact->relative_error)) exact = &trial;
  }
  if (!now || pace(*now, load) > kWorthChanging * best) return exact->codec;
  return exact->relative_error < now->relative_error ? exact->codec : now->codec;
}

}  // namespace swarmline
