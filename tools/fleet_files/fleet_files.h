// The files that start a fleet of peers on machines of others: for SkyPilot, Kubernetes, Slurm,
// cloud-init and systemd, filled in from a run's config and a list of prices. Nothing in them needs
// a service of ours, and no secret is in them: the join string is a file that the user puts there.
//   Thread: any. Errors: kUserMistake with a sentence.
//   Bounds: FleetFilesPlan::classes as many as docs/formats/fleet_prices.md allows.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace swarmline {

enum class FleetTarget : std::uint8_t { kSkypilot, kKubernetes, kSlurm, kCloudInit, kSystemd };
Result<FleetTarget> parse_fleet_target(std::string_view name);
std::vector<std::string_view> fleet_target_names();

// Machines of one kind.
struct MachineClass {
  std::string name;         // of the price list; "peer" without one. Letters, digits and '-'
  std::uint32_t count = 1;  // peers
  double price = 0;         // per hour of one; 0: not known
  double egress_price = 0;  // of a GB that one sends; 0: as the run's config says
};

struct FleetFilesPlan {
  std::string run;     // its name
  std::string config;  // the config's file name, which the files expect beside them
  std::string device = "cuda";
  std::string image;  // a container's, of Kubernetes
  std::string wheel;  // what pip installs elsewhere
  std::uint16_t port = 7400;
  std::uint32_t notice_seconds = 30;  // between the word that a machine goes and its end
  std::vector<MachineClass> classes;  // one at least
};

struct FleetFile {
  std::string name;  // below the output folder
  std::string text;
  bool is_program = false;
};

std::vector<FleetFile> make_fleet_files(FleetTarget target, const FleetFilesPlan& plan);

// "{{name}}" of the text by its value; every name has to have one (CHECK).
struct Filled {
  std::string_view name;
  std::string value;
};
std::string fill_in(std::string_view text, const std::vector<Filled>& values);

}  // namespace swarmline
