// The square-cube law of pipeline training: what a stage computes for a microbatch grows with the
// square of the hidden size, what it sends only with the hidden size. Pure.
//   Units:   seconds, bits per second, shares of 1. Thread: any. Errors: none; sizes are above 0.
//   Source:  SWARM (Ryabinin et al., ICML 2023), section 4.1. Its figures here are recalled from
//            the paper and were not checked against its text.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
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

// The paper's regime: a peer waits for each answer, u = C / (C + X + RTT) with C half of forward
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

// ---- The paper's V100s, as recalled -----------------------------------------------------------

inline constexpr double kPaperBitsPerSecond = 500e6;
inline constexpr std::array<double, 5> kPaperRttSeconds = {0, 0.010, 0.050, 0.100, 0.200};

struct PaperColumn {
  std::string_view name;
  std::uint32_t hidden, layers, sequence;
  bool bits8;              // how activations travel: 8 bits an element, else 16
  double compute_seconds;  // C and X that the column's five figures obey
  double wire_seconds;
  std::array<double, 5> percent;  // utilization, by kPaperRttSeconds
};
// "Ours" fits its figures with 2048 tokens only; its sequence length is inferred from that.
inline constexpr std::array<PaperColumn, 4> kPaperColumns = {{
    {"base", 768, 1, 512, false, 0.00333, 0.0151, {18.0, 11.8, 4.88, 2.78, 1.53}},
    {"xxlarge", 4096, 1, 512, false, 0.0287, 0.0614, {32.1, 28.9, 20.1, 14.9, 10.1}},
    {"GPT-3", 12288, 1, 512, false, 0.235, 0.0512, {82.1, 79.3, 70.3, 60.2, 48.5}},
    {"Ours", 4096, 3, 2048, true, 0.351, 0.0410, {89.5, 87.2, 79.5, 71.5, 59.2}},
}};

// One microbatch of one sequence, of blocks with 12 d^2 parameters each.
struct PaperStage {
  std::uint32_t hidden = 0, layers = 0, sequence = 0;
  double bits_per_element = 16;  // on the wire
};
// One in flight on a V100: FLOP/s and the share of the wire time that computing does not hide lie
// between those of the columns, which come out as they are (by the logarithms of the hidden size
// and of C over the wire time; beyond the outermost as at them).
double v100_one_in_flight(const PaperStage& stage, const LinkSpeed& link);
// The paper's own figure, where it has one for this.
std::optional<double> paper_percent(const PaperStage& stage, const LinkSpeed& link);

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
