// The square-cube law of pipeline training: what a stage computes for a microbatch grows with the
// square of the hidden size, what it sends only with the hidden size. Pure.
//   Units:   seconds, bits per second, shares of 1. Thread: any. Errors: none; sizes are above 0.
//   Source:  SWARM (Ryabinin et al., ICML 2023), section 4.1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace swarmline {

// One microbatch at one stage.
struct StageLoad {
  double forward_seconds = 0;
  double backward_seconds = 0;
  double codec_seconds = 0;  // of the device: what it sends and receives, encoded and decoded
  double forward_bytes = 0;  // on the wire to the next stage
  double backward_bytes = 0;
  double busy_seconds() const { return forward_seconds + backward_seconds + codec_seconds; }
};

// A peer's own link: that much each way at once.
struct LinkSpeed {
  double bits_per_second = 0;
  double rtt_seconds = 0;  // to the peers of the neighbouring stages
};

// A peer waits for each answer: u = C / (C + X + RTT) with C half of forward
// and backward and X the mean time on the wire. Codec time counts as lost.
double one_in_flight(const StageLoad& load, const LinkSpeed& link);

struct Chain {
  std::uint32_t stages = 4;        // equal ones, one peer each; at least 2
  std::uint32_t in_flight = 8;     // microbatches under way in all, at least 1
  std::uint32_t microbatches = 0;  // of a step, which fills and empties the chain; 0: no steps end
};

// The engine gives a device one job to work on and one ahead, and does not take that one back.
inline constexpr std::size_t kDeviceJobs = 2;
// What a message takes beside the wire: system calls and threads that wake. Measured: a microbatch
// alone in a chain of two over loopback, of three messages, is 0.9 ms late.
inline constexpr double kMessageSeconds = 0.0003;

// Share of the time that each device is busy when microbatches pass through the chain as in the
// engine: backward work first, messages one way, computing and sending at once, each peer's sends
// one after the other. By playing it event by event. What the coordinator and the optimizer take is
// not in it.
double many_in_flight(const StageLoad& load, const LinkSpeed& link, const Chain& chain);

// The bandwidth each way from which on a middle stage, which sends activations and gradients, can
// compute all the time.
double break_even_bits_per_second(const StageLoad& load);

// ---- Fits -------------------------------------------------------------------------------------

struct LineFit {
  double slope = 0, intercept = 0;
  double r2 = 0;  // share of the variance that the line explains
};
// Least squares; at least two different x.
LineFit fit_line(std::span<const std::pair<double, double>> points);

struct TimeSample {
  double flops = 0;     // of matrix products
  double elements = 0;  // that passes over activations touch
  double seconds = 0;
};
// Seconds of work as matrix products and passes over activations, by least squares of the relative
// error; neither is ever below 0. Of one sample: all products.
struct TimeTrend {
  double per_flop = 0, per_element = 0;
  double seconds(double flops, double elements) const {
    return per_flop * flops + per_element * elements;
  }
};
TimeTrend fit_times(std::span<const TimeSample> samples);

}  // namespace swarmline
