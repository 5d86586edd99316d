// A fleet written down for `swarmline fleet plan`: devices and links from a TOML file, or as a
// run's status measured them.
//   Format:  docs/formats/fleet_prices.md, number kFleetPricesFormat.
//   Errors:  kUserMistake, "FILE:LINE: key: found ..., expected ..."; kIo; kCorrupt for a status.
//   Bounds:  kFleetPricesBytesMax, kFleetClassesMax, kFleetClassPeersMax.
#pragma once

#include <string>

#include "tools/predict/fleet_prediction.h"

namespace swarmline {

inline constexpr int kFleetPricesFormat = 1;
inline constexpr std::uint64_t kFleetPricesBytesMax = 1 << 20;
inline constexpr std::size_t kFleetClassesMax = 64;
inline constexpr std::uint32_t kFleetClassPeersMax = 10'000;

// `run`: where the config is from, for sentences. `status`: path of what `swarmline status --json`
// printed; then its peers are the fleet, and the file names no devices. Empty: the file's devices.
Result<FleetQuestion> load_fleet_question(const RunConfig& config, const std::string& run,
                                          const std::string& prices, const std::string& status);

}  // namespace swarmline
