#include "pipeline/coordinator/members/heartbeat_pace.h"

#include <algorithm>

#include "base/marks.h"
#include "pipeline/protocol/knobs.h"

namespace swarmline {

namespace {
constexpr double kClearlyFewer = 0.7;  // of heartbeats_per_second, at half the period
constexpr int kPeriodsOfSilence = 2;   // periods in a silence, at least: as the config's check says
}  // namespace

HeartbeatPace::HeartbeatPace(const NetSection& net) : usual_(from_seconds(net.heartbeat_seconds)) {
  Duration most = knobs().heartbeat_period_max;
  if (net.peer_silence_seconds > 0)
    most = std::min(most, from_seconds(net.peer_silence_seconds) / kPeriodsOfSilence);
  longest_ = std::max(usual_, most);
}

void HeartbeatPace::count(std::size_t peers) {
  const auto comes_with = [&](int doublings, double share) {
    const double per_second = static_cast<double>(peers) / to_seconds(period(doublings));
    return per_second > share * knobs().heartbeats_per_second;
  };
  while (now() < longest_ && comes_with(doublings_, 1)) {
    SWARMLINE_MARK("heartbeat_pace.thinned");
    ++doublings_;
  }
  while (doublings_ > 0 && !comes_with(doublings_ - 1, kClearlyFewer)) {
    SWARMLINE_MARK("heartbeat_pace.denser");
    --doublings_;
  }
}

Duration HeartbeatPace::period(int doublings) const {
  Duration period = usual_;
  for (int i = 0; i < doublings && period < longest_; ++i) period = std::min(2 * period, longest_);
  return period;
}

}  // namespace swarmline
