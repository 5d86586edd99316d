#include "tools/predict/square_cube.h"

#include <algorithm>
#include <array>
#include <deque>
#include <queue>
#include <vector>

#include "base/check.h"

namespace swarmline {
namespace {

constexpr double kBitsPerByte = 8;
// Without steps: the chain's rate over so many rounds of its window, after some to settle.
constexpr std::uint32_t kSettlingRounds = 4, kCountedRounds = 16;

double wire_seconds(double bytes, const LinkSpeed& link) {
  return kBitsPerByte * bytes / link.bits_per_second;
}

// Microbatches are alike, so counts stand for them.
class ChainPlay {
 public:
  ChainPlay(const StageLoad& load, const LinkSpeed& link, std::uint32_t stages)
      : one_way_(link.rtt_seconds / 2 + kMessageSeconds),
        compute_{load.forward_seconds + load.codec_seconds / 2,
                 load.backward_seconds + load.codec_seconds / 2},
        wire_{wire_seconds(load.forward_bytes, link), wire_seconds(load.backward_bytes, link)},
        peers_(stages) {}

  // Lets `window` microbatches be under way until `total` are back; when each came back.
  std::vector<double> play(std::uint32_t window, std::uint32_t total) {
    to_start_ = total;
    for (std::uint32_t i = 0; i < window; ++i) start_one(0);
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.time;
      if (!event.done) {
        ++peers_[event.stage].ready[event.way];
      } else {
        peers_[event.stage].device.pop_front();
        compute_first(event.stage);
        finished(event.stage, event.way);
      }
      feed(event.stage);
    }
    return std::move(back_);
  }

 private:
  enum Way : std::uint8_t { kForward, kBackward };
  struct Event {
    double time;
    std::uint64_t order;
    std::size_t stage;
    Way way;
    bool done;  // computed; else: arrived
    bool operator>(const Event& other) const {
      return time != other.time ? time > other.time : order > other.order;
    }
  };
  struct Peer {
    std::array<std::uint32_t, 2> ready{};  // by way, not yet given to the device
    std::deque<Way> device;                // the first is being worked on
    double uplink_free = 0;
  };

  void at(double time, std::size_t stage, Way way, bool done) {
    events_.push({time, order_++, stage, way, done});
  }
  void start_one(double time) {
    if (to_start_ == 0) return;
    --to_start_;
    at(time, 0, kForward, false);
  }
  void feed(std::size_t stage) {
    Peer& peer = peers_[stage];
    while (peer.device.size() < kDeviceJobs && peer.ready[kForward] + peer.ready[kBackward] > 0) {
      const Way way = peer.ready[kBackward] > 0 ? kBackward : kForward;
      --peer.ready[way];
      peer.device.push_back(way);
      if (peer.device.size() == 1) compute_first(stage);
    }
  }
  void compute_first(std::size_t stage) {
    const Peer& peer = peers_[stage];
    if (peer.device.empty()) return;
    const Way way = peer.device.front();
    at(now_ + compute_[way], stage, way, true);
  }
  void finished(std::size_t stage, Way way) {
    if (way == kForward && stage + 1 == peers_.size()) {
      ++peers_[stage].ready[kBackward];
    } else if (way == kBackward && stage == 0) {
      back_.push_back(now_);
      start_one(now_ + kMessageSeconds);  // the coordinator's lease
    } else {
      Peer& peer = peers_[stage];
      peer.uplink_free = std::max(now_, peer.uplink_free) + wire_[way];
      at(peer.uplink_free + one_way_, way == kForward ? stage + 1 : stage - 1, way, false);
    }
  }

  double one_way_;
  std::array<double, 2> compute_, wire_;  // by way
  std::vector<Peer> peers_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t order_ = 0;
  std::uint32_t to_start_ = 0;
  double now_ = 0;
  std::vector<double> back_;
};

}  // namespace

double one_in_flight(const StageLoad& load, const LinkSpeed& link) {
  const double compute = (load.forward_seconds + load.backward_seconds) / 2;
  const double wire = wire_seconds((load.forward_bytes + load.backward_bytes) / 2, link);
  return compute / (compute + load.codec_seconds / 2 + wire + link.rtt_seconds);
}

double many_in_flight(const StageLoad& load, const LinkSpeed& link, const Chain& chain) {
  SWARMLINE_CHECK(chain.stages >= 2 && chain.in_flight >= 1);
  ChainPlay play(load, link, chain.stages);
  if (chain.microbatches > 0) {
    const auto back = play.play(chain.in_flight, chain.microbatches);
    return load.busy_seconds() * chain.microbatches / back.back();
  }
  const std::uint32_t settling = kSettlingRounds * chain.in_flight;
  const std::uint32_t counted = kCountedRounds * chain.in_flight;
  // One round more keeps the chain full to the end of the counted ones.
  const auto back = play.play(chain.in_flight, settling + counted + chain.in_flight);
  const double seconds = back[settling + counted - 1] - back[settling - 1];
  return std::min(1.0, load.busy_seconds() * counted / seconds);
}

double break_even_bits_per_second(const StageLoad& load) {
  return kBitsPerByte * (load.forward_bytes + load.backward_bytes) / load.busy_seconds();
}

LineFit fit_line(std::span<const std::pair<double, double>> points) {
  const auto n = static_cast<double>(points.size());
  double mean_x = 0, mean_y = 0;
  for (const auto& [x, y] : points) {
    mean_x += x / n;
    mean_y += y / n;
  }
  double xx = 0, xy = 0, yy = 0;
  for (const auto& [x, y] : points) {
    xx += (x - mean_x) * (x - mean_x);
    xy += (x - mean_x) * (y - mean_y);
    yy += (y - mean_y) * (y - mean_y);
  }
  SWARMLINE_CHECK_MSG(xx > 0, "a line through points of one x");
  const double slope = xy / xx;
  return {
      .slope = slope, .intercept = mean_y - slope * mean_x, .r2 = yy > 0 ? xy * xy / (xx * yy) : 1};
}

TimeTrend fit_times(std::span<const TimeSample> samples) {
  // Each equation is divided by its seconds: 1 = per_flop * f + per_element * e.
  double ff = 0, fe = 0, ee = 0, f1 = 0, e1 = 0;
  for (const TimeSample& sample : samples) {
    const double f = sample.flops / sample.seconds, e = sample.elements / sample.seconds;
    ff += f * f;
    fe += f * e;
    ee += e * e;
    f1 += f;
    e1 += e;
  }
  SWARMLINE_CHECK_MSG(ff > 0 && ee > 0, "a trend of no times");
  const TimeTrend products{.per_flop = f1 / ff};
  constexpr double kTooAlike = 1e-6;  // then the two cannot be told apart
  const double determinant = ff * ee - fe * fe;
  if (determinant <= kTooAlike * ff * ee) return products;
  const TimeTrend both{.per_flop = (f1 * ee - e1 * fe) / determinant,
                       .per_element = (e1 * ff - f1 * fe) / determinant};
  if (both.per_element < 0) return products;
  return both.per_flop < 0 ? TimeTrend{.per_element = e1 / ee} : both;
}

}  // namespace swarmline
