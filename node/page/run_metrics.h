// A run's numbers in Prometheus' text format, version 0.0.4; docs/metrics.md lists the names.
//   What:   what is not known yet is left out. Series: one a peer, a boundary and a kind of event.
//   Thread: any; pure. Source: prometheus-cpp writes the text.
#pragma once

#include <string>

#include "node/page/run_series.h"
#include "pipeline/protocol/run_status.h"

namespace swarmline {

inline constexpr const char* kMetricsContentType = "text/plain; version=0.0.4; charset=utf-8";

std::string metrics_text(const RunStatus& status, const RunSeries& series);

}  // namespace swarmline
