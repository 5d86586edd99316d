#include "pipeline/stage/common/slowdown.h"

#include <algorithm>
#include <cmath>

namespace swarmline {
namespace {

constexpr double kUsualGain = 1.0 / 256;  // of a job's time; the first ones count alike

}  // namespace

void Slowdown::on_job(JobKind kind, Duration service) {
  const auto at = static_cast<std::size_t>(kind);
  if (at >= usual_.size()) return;
  Usual& usual = usual_[at];
  const double seconds = to_seconds(service);
  if (usual.samples >= kSamplesMin && usual.seconds > 0)
    newest_ = {newest_[1],
               service < kLong ? std::min(seconds / usual.seconds, 1.0) : seconds / usual.seconds};
  ++usual.samples;
  usual.seconds += (seconds - usual.seconds) * std::max(kUsualGain, 1.0 / usual.samples);
}

std::uint64_t Slowdown::may_have(double usually) const {
  if (!is_slow()) return static_cast<std::uint64_t>(std::ceil(usually));
  return std::max(kFewest, static_cast<std::uint64_t>(std::ceil(usually / factor())));
}

}  // namespace swarmline
