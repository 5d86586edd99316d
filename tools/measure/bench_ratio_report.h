// What `swarmline bench ratio` prints and writes. Pure.
//   Formats: docs/formats/bench.md, kind "ratio".
#pragma once

#include <string>
#include <vector>

#include "tools/measure/ratio_stage.h"
#include "tools/plot/line_plot.h"

namespace swarmline {

inline constexpr std::uint64_t kRatioBenchFormat = 1;

struct RatioReport {
  std::string machine;  // the processor
  std::string device;
  int threads = 1;
  int rounds = 0;
  double wall_seconds = 0;  // since 1970, when it began
  std::uint32_t microbatch = 1;
  Chain chain;
  std::vector<LinkSpeed> links;  // by bandwidth, then by round trip
  std::vector<RatioStage> stages;
};

// Tables for 80 columns, one line each; modelled stages are marked.
std::string to_tables(const RatioReport& report);
// Utilization by hidden size, a line for each bandwidth: of the first layers, tokens and codec and
// of the middle round trip.
LinePlot utilization_plot(const RatioReport& report);

std::string to_json(const RatioReport& report);
// One row for each stage, codec and link; cells that do not apply are empty.
std::string to_csv(const RatioReport& report);

// The square-cube law as it was measured: computing over sending by hidden size.
struct RatioFit {
  std::uint32_t layers = 0, sequence = 0;
  CodecSpec codec;
  std::size_t sizes = 0;  // hidden sizes measured
  LineFit measured;       // seconds a byte, times FLOP/s of the plain product
  LineFit counted;        // FLOP a byte
};
// Of layers, tokens and codec with at least kRatioFitSizesMin hidden sizes measured.
inline constexpr std::size_t kRatioFitSizesMin = 3;
std::vector<RatioFit> ratio_fits(const RatioReport& report);

}  // namespace swarmline
