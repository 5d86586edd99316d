#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <numeric>
#include <system_error>

#include <fmt/format.h>

#include "base/limits.h"
#include "cli/commands.h"
#include "cli/config_flags.h"
#include "console/exit_codes.h"
#include "engine/config/load.h"
#include "engine/store/files.h"
#include "tools/fleet_files/fleet_files.h"
#include "tools/predict/fleet_prices.h"

namespace swarmline {
namespace {

namespace fs = std::filesystem;

struct InitFlags {
  std::string config, target, out, prices, image, wheel, device = "cuda";
  std::uint16_t port = 7400;
  std::uint32_t notice_seconds = 30;
};

// Names of services and jobs take fewer characters than names of runs do.
std::string plain_name(std::string name) {
  for (char& c : name) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if ((c < 'a' || c > 'z') && (c < '0' || c > '9')) c = '-';
  }
  return name;
}

// What the run's own config says, no peer has to.
double said_apart(double egress_price, const RunConfig& config) {
  return egress_price == config.money.egress_price ? 0 : egress_price;
}

Result<std::vector<MachineClass>> classes_of(const InitFlags& flags, const RunConfig& config) {
  if (flags.prices.empty()) {
    std::uint32_t peers = 0;
    for (std::uint32_t stage = 0; stage < config.pipeline.stages; ++stage)
      peers +=
          config.pipeline.peers[std::min<std::size_t>(stage, config.pipeline.peers.size() - 1)];
    return std::vector<MachineClass>{{.name = "peer", .count = peers}};
  }
  const auto fleet = load_fleet_question(config, flags.config, flags.prices, "");
  if (!fleet) return std::unexpected(fleet.error());
  std::vector<MachineClass> classes;
  for (const auto& machines : fleet->classes)
    if (machines.count > 0)
      classes.push_back({.name = plain_name(machines.name),
                         .count = machines.count,
                         .price = machines.dollars_per_hour,
                         .egress_price = said_apart(machines.egress_dollars_per_gb, config)});
  if (classes.empty())
    return fail(ErrorCode::kUserMistake, flags.prices + ": it has no machines; give a count");
  return classes;
}

Result<void> write(const std::string& folder, const FleetFile& file) {
  const std::string path = (fs::path(folder) / file.name).string();
  SWARMLINE_TRY(write_text_file_atomically(path, file.text));
  std::error_code error;
  if (file.is_program)
    fs::permissions(path, fs::perms::owner_exec | fs::perms::group_exec | fs::perms::others_exec,
                    fs::perm_options::add, error);
  if (error) return fail(ErrorCode::kIo, fmt::format("{}: {}", path, error.message()));
  return {};
}

Result<void> init(const InitFlags& flags) {
  const auto target = parse_fleet_target(flags.target);
  if (!target) return std::unexpected(target.error());
  const auto config = load_run_config(flags.config, {});
  if (!config) return std::unexpected(config.error());
  auto classes = classes_of(flags, *config);
  if (!classes) return std::unexpected(std::move(classes).error());
  const auto listed = fs::exists(flags.out) ? list_folder(flags.out) : std::vector<std::string>();
  if (!listed) return std::unexpected(listed.error());
  if (!listed->empty())
    return fail(ErrorCode::kUserMistake,
                fmt::format("--out: {} is not empty; name a new folder", flags.out));
  const auto text = read_text_file(flags.config, Limits::config_file_bytes_max);
  if (!text) return std::unexpected(text.error());
  SWARMLINE_TRY(make_folders(flags.out));
  const FleetFilesPlan plan{.run = plain_name(config->run.name),
                            .config = fs::path(flags.config).filename().string(),
                            .device = flags.device,
                            .image = flags.image,
                            .wheel = flags.wheel,
                            .port = flags.port,
                            .notice_seconds = flags.notice_seconds,
                            .classes = std::move(*classes)};
  std::vector<FleetFile> files = make_fleet_files(*target, plan);
  files.push_back({.name = plan.config, .text = *text});
  for (const FleetFile& file : files) {
    SWARMLINE_TRY(write(flags.out, file));
    std::printf("%s\n", (fs::path(flags.out) / file.name).c_str());
  }
  std::printf("Next: read %s\n", (fs::path(flags.out) / "README.md").c_str());
  return {};
}

}  // namespace

void add_fleet_init_command(CLI::App& fleet, int& exit_code) {
  auto flags = std::make_shared<InitFlags>();
  flags->image = "swarmline:" SWARMLINE_VERSION;
  flags->wheel = "swarmline-" SWARMLINE_VERSION "-py3-none-manylinux_2_35_x86_64.whl";
  CLI::App* command = fleet.add_subcommand(
      "init", "Write the files that start a run's coordinator and peers on a fleet");
  command->add_option("config", flags->config, "The run's TOML file")
      ->required()
      ->type_name("CONFIG");
  command
      ->add_option("--target", flags->target,
                   "What starts the machines: skypilot, kubernetes, slurm, cloud-init or systemd")
      ->required()
      ->type_name("TARGET");
  command->add_option("--out", flags->out, "Output folder: a new one, or an empty one")
      ->required()
      ->type_name("DIR");
  command
      ->add_option("--prices", flags->prices,
                   "List of machines with counts and prices (docs/formats/fleet_prices.md); "
                   "default: as many peers as the config starts with")
      ->type_name("FILE");
  command->add_option("--port", flags->port, "Port of the coordinator")->capture_default_str();
  command->add_option("--device", flags->device, "Compute device of the peers")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
  command->add_option("--image", flags->image, "Container image (kubernetes)")
      ->capture_default_str();
  command->add_option("--wheel", flags->wheel, "Wheel that pip installs (skypilot, cloud-init)")
      ->capture_default_str();
  command
      ->add_option("--notice", flags->notice_seconds,
                   "Seconds between the word that a machine is taken and its end")
      ->check(CLI::Range(1, 3600))
      ->capture_default_str();
  command->footer(
      "Examples:\n"
      "  swarmline fleet init run.toml --target slurm --out slurm\n"
      "  swarmline fleet init run.toml --target kubernetes --prices prices.toml --out kubernetes");
  command->callback([flags, &exit_code] {
    const auto made = init(*flags);
    exit_code = made ? kExitDone : report_error(made.error());
  });
}

}  // namespace swarmline
