#include "tools/fleet_files/fleet_files.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "tools/fleet_files/fleet_templates.h"

namespace swarmline {
namespace {

constexpr std::array<std::pair<std::string_view, FleetTarget>, 5> kTargets = {
    {{"skypilot", FleetTarget::kSkypilot},
     {"kubernetes", FleetTarget::kKubernetes},
     {"slurm", FleetTarget::kSlurm},
     {"cloud-init", FleetTarget::kCloudInit},
     {"systemd", FleetTarget::kSystemd}}};

std::string flags_of_prices(const MachineClass& machines) {
  std::string flags;
  if (machines.price > 0) flags += fmt::format(" --price {}", machines.price);
  if (machines.egress_price > 0) flags += fmt::format(" --egress-price {}", machines.egress_price);
  return flags;
}

std::string upper(std::string text) {
  for (char& c : text)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return text;
}

std::string cost_line(const FleetFilesPlan& plan) {
  double price = 0;
  std::uint32_t peers = 0;
  for (const MachineClass& machines : plan.classes) {
    price += machines.price * machines.count;
    peers += machines.count;
  }
  return price > 0 ? fmt::format("{} peers, {:.2f} an hour", peers, price)
                   : fmt::format("{} peers, no prices given", peers);
}

std::vector<Filled> of_run(const FleetFilesPlan& plan) {
  return {{"run", plan.run},
          {"config", plan.config},
          {"device", plan.device},
          {"image", plan.image},
          {"wheel", plan.wheel},
          {"port", std::to_string(plan.port)},
          {"cost", cost_line(plan)},
          // What the system grants between its SIGTERM and SIGKILL.
          {"grace", std::to_string(plan.notice_seconds)}};
}

std::vector<Filled> of_class(const FleetFilesPlan& plan, const MachineClass& machines) {
  std::vector<Filled> values = of_run(plan);
  values.push_back({"class", machines.name});
  values.push_back({"count", std::to_string(machines.count)});
  values.push_back({"last", std::to_string(machines.count - 1)});
  values.push_back({"price", flags_of_prices(machines)});
  values.push_back({"accelerator", machines.name == "peer" ? "T4" : upper(machines.name)});
  values.push_back(
      {"gpu_limit", plan.device == "cpu" ? std::string() : "\n              nvidia.com/gpu: 1"});
  values.push_back({"gres", plan.device == "cpu" ? std::string() : "\n#SBATCH --gres=gpu:1"});
  return values;
}

struct Made {
  std::string_view name;  // a template, too
  std::string_view text;
  bool is_program = false;
};

void add(std::vector<FleetFile>& files, const Made& made, const std::vector<Filled>& values) {
  files.push_back({fill_in(made.name, values), fill_in(made.text, values), made.is_program});
}

}  // namespace

Result<FleetTarget> parse_fleet_target(std::string_view name) {
  for (const auto& [known, target] : kTargets)
    if (known == name) return target;
  return fail(ErrorCode::kUserMistake, fmt::format("--target: found \"{}\", expected one of {}",
                                                   name, fmt::join(fleet_target_names(), ", ")));
}

std::vector<std::string_view> fleet_target_names() {
  std::vector<std::string_view> names;
  for (const auto& [name, target] : kTargets) names.push_back(name);
  return names;
}

std::string fill_in(std::string_view text, const std::vector<Filled>& values) {
  std::string filled;
  for (std::size_t open = text.find("{{"); open != text.npos; open = text.find("{{")) {
    const std::size_t close = text.find("}}", open);
    SWARMLINE_CHECK(close != text.npos);
    const std::string_view name = text.substr(open + 2, close - open - 2);
    const auto value = std::ranges::find(values, name, &Filled::name);
    SWARMLINE_CHECK(value != values.end());
    filled += text.substr(0, open);
    filled += value->value;
    text.remove_prefix(close + 2);
  }
  filled += text;
  return filled;
}

std::vector<FleetFile> make_fleet_files(FleetTarget target, const FleetFilesPlan& plan) {
  SWARMLINE_CHECK(!plan.classes.empty());
  using namespace fleet_templates;
  std::vector<FleetFile> files;
  const std::vector<Filled> run = of_run(plan);
  const auto each = [&](const Made& made) {
    for (const MachineClass& machines : plan.classes) add(files, made, of_class(plan, machines));
  };
  switch (target) {
    case FleetTarget::kSkypilot:
      add(files, {"README.md", kSkypilotPage}, run);
      add(files, {"coordinator.sky.yaml", kSkypilotCoordinator}, run);
      each({"peer-{{class}}.sky.yaml", kSkypilotPeer});
      add(files, {"start-peers.sh", kSkypilotStart, true}, run);
      break;
    case FleetTarget::kKubernetes:
      add(files, {"README.md", kKubernetesPage}, run);
      add(files, {"coordinator.yaml", kKubernetesCoordinator}, run);
      each({"peers-{{class}}.yaml", kKubernetesPeers});
      break;
    case FleetTarget::kSlurm:
      add(files, {"README.md", kSlurmPage}, run);
      add(files, {"coordinator.sbatch", kSlurmCoordinator, true}, run);
      each({"peers-{{class}}.sbatch", kSlurmPeers, true});
      break;
    case FleetTarget::kCloudInit:
      add(files, {"README.md", kCloudInitPage}, run);
      each({"peer-{{class}}.cloud-init.yaml", kCloudInitPeer});
      break;
    case FleetTarget::kSystemd:
      add(files, {"README.md", kSystemdPage}, run);
      add(files, {"swarmline-coordinator.service", kSystemdCoordinator}, run);
      each({"swarmline-{{class}}@.service", kSystemdPeer});
      break;
  }
  return files;
}

}  // namespace swarmline
