// What `swarmline simulate` is asked: a run, the machines that come and go, their links, faults.
//   Format: docs/formats/scenario.md. Sections of a run's config mean what docs/config.md says.
//   Errors: kUserMistake, "FILE:LINE: section.key: found ..., expected ..."; of files kNotFound and
//           kIo.
//   Bounds: kScenarioMachinesMax machines, kScenarioFaultsMax faults,
//           Limits::config_file_bytes_max.
//   Thread: any.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/config/run_config.h"
#include "sim/faults/random_faults.h"
#include "sim/fleet/fleet.h"
#include "sim/scenario/zone_links.h"

namespace swarmline {

inline constexpr int kScenarioFormat = 1;
inline constexpr std::uint32_t kScenarioMachinesMax = 10'000;
inline constexpr std::size_t kScenarioFaultsMax = 10'000;

// Machines of one kind.
struct MachineKind {
  std::string name;
  std::uint32_t count = 0;  // 0: only those that a fleet brings
  double join_seconds = 0;  // 0: there from the beginning
  // How fast: FLOP/s it reaches, or times of one microbatch at any stage.
  double flops = 0;
  double forward_seconds = 0, backward_seconds = 0;
  double jitter = 0;
  double up_bits = 0, down_bits = 0;  // per second; 0: unlimited
  double price = 0;                   // an hour
  std::string zone;                   // that they say; empty: none
};

struct TimedFault {
  double seconds = 0;
  std::uint32_t line = 0;  // of the scenario
  Fault fault;             // nodes are machines in the order of the scenario, from 1
};

struct Scenario {
  std::string name;
  std::uint64_t seed = 1;
  double seconds = 0;  // of virtual time; 0: until the run's steps are done
  RunConfig run;
  bool seats_given = false;  // [pipeline] peers is the user's
  std::vector<MachineKind> machines;
  SimLink link;
  std::optional<ZoneLinks> zone_links;  // of machines whose zones it lists; others: `link`
  std::string coordinator_zone;
  std::optional<Fleet> fleet;
  std::string fleet_machine;      // the kind of its machines
  double fleet_from_seconds = 0;  // where in the fleet's time the scenario begins
  double notice_seconds = 0;      // before a machine of the fleet goes; 0: none
  std::vector<TimedFault> faults;
  RandomFaultOptions random;  // count 0: none

  std::uint32_t listed_at_start() const;
  std::uint32_t fleet_at_start() const;
};

// `origin` names the text in sentences; files in it are relative to `folder`.
Result<Scenario> parse_scenario(std::string_view text, std::string_view origin,
                                const std::string& folder);
Result<Scenario> load_scenario(const std::string& path);

}  // namespace swarmline
