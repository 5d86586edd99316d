#include <algorithm>
#include <charconv>
#include <cstdio>
#include <numeric>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/printable.h"
#include "cli/commands.h"
#include "cli/config_flags.h"
#include "console/exit_codes.h"
#include "console/text.h"
#include "engine/config/load.h"
#include "engine/net/network.h"
#include "node/descriptors.h"
#include "node/initial_state.h"
#include "node/page_access.h"
#include "node/reference_run.h"
#include "node/run_change.h"
#include "node/run_restore.h"
#include "node/spent_budget.h"
#include "node/stage_table.h"
#include "node/summary.h"
#include "node/supervisor.h"
#include "node/visible_gpus.h"
#include "tools/language/sample.h"

namespace swarmline {
namespace {

constexpr std::size_t kSampleLinesMax = 8;
constexpr std::size_t kSampleColumns = 76;

struct LaunchFlags {
  ConfigFlags config;
  bool fresh = false;
  std::string peer_config;
  std::optional<std::uint32_t> threads;
  std::vector<std::string> devices;
  std::vector<std::string> emulate;
  int restarts = SupervisorOptions{.config = {},
                                   .folder = RunFolder({}),
                                   .peer_arguments = {},
                                   .seat_arguments = {},
                                   .peer_devices = {}}
                     .restarts_max;
  bool reference = false;
  std::uint64_t permute_sums = 0;
  std::string checkpoint_out;
  std::string mutate;
};

template <typename T>
bool take_number(std::string_view& text, T& value, char end) {
  const auto [at, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<std::size_t>(at - text.data()));
  if (end == '\0') return text.empty();
  if (text.empty() || text.front() != end) return false;
  text.remove_prefix(1);
  return true;
}

// STAGE:PEER=FORWARD_MS/BACKWARD_MS, PEER counted within the stage.
Result<void> add_emulation(const std::string& flag, const RunConfig& config,
                           SupervisorOptions& options) {
  std::string_view text = flag;
  std::uint32_t stage = 0, peer = 0;
  double forward = 0, backward = 0;
  if (!take_number(text, stage, ':') || !take_number(text, peer, '=') ||
      !take_number(text, forward, '/') || !take_number(text, backward, '\0')) {
    return fail(ErrorCode::kUserMistake,
                fmt::format("--emulate {}: expected STAGE:PEER=FORWARD_MS/BACKWARD_MS, e.g. "
                            "1:0=20/40",
                            flag));
  }
  const auto& peers = config.pipeline.peers;
  if (stage >= peers.size() || peer >= peers[stage]) {
    return fail(ErrorCode::kUserMistake,
                fmt::format("--emulate {}: the run has {} stages, and stage {} has {} peers; both "
                            "count from 0",
                            flag, peers.size(), stage, stage < peers.size() ? peers[stage] : 0));
  }
  options.seat_arguments[{stage, peer}] = {"--emulate-forward-ms", fmt::format("{}", forward),
                                           "--emulate-backward-ms", fmt::format("{}", backward)};
  return {};
}

Result<PeerConfig> machine_of(const LaunchFlags& flags) {
  std::vector<std::string> overrides;
  if (flags.threads) overrides.push_back(fmt::format("peer.threads={}", *flags.threads));
  return load_peer_config(flags.peer_config, overrides);
}

std::uint32_t peers_of(const RunConfig& config) {
  return std::accumulate(config.pipeline.peers.begin(), config.pipeline.peers.end(), 0U);
}

// One port cannot serve several peers.
Result<void> check_listen(const PeerConfig& machine, const RunConfig& config) {
  const auto address = parse_address(machine.listen);
  const std::uint32_t peers = peers_of(config);
  if (!address || address->port == 0 || peers == 1) return {};
  return fail(ErrorCode::kUserMistake,
              fmt::format("--peer-config: peer.listen: found {}, but {} peers start on this "
                          "machine; expected port 0 (any free one)",
                          machine.listen, peers));
}

// One for each peer: what a device holds of several peers nobody has planned.
Result<void> check_devices(const LaunchFlags& flags, const RunConfig& config) {
  for (const std::string& device : flags.devices)
    if (auto named = load_peer_config({}, std::vector{"peer.device=" + device}); !named)
      return fail(ErrorCode::kUserMistake, "--devices: " + named.error().what);
  const std::uint32_t peers = peers_of(config);
  if (flags.devices.empty() || flags.devices.size() == peers) return {};
  return fail(
      ErrorCode::kUserMistake,
      fmt::format("--devices: found {} devices, but the run has {} peers; name one for each "
                  "(one may be named again), or set pipeline.peers so that there are {}",
                  flags.devices.size(), peers, flags.devices.size()));
}

// "cuda" is the machine's first GPU for one peer; a whole swarm takes all of them.
std::vector<std::string> devices_of(const LaunchFlags& flags, const PeerConfig& machine,
                                    const RunConfig& config) {
  if (!flags.devices.empty() || machine.device != "cuda") return flags.devices;
  return spread_over_gpus(peers_of(config), visible_gpus());
}

Result<SupervisorOptions> swarm_options(const LaunchFlags& flags, RunConfig config) {
  auto machine = machine_of(flags);
  if (!machine) return std::unexpected(std::move(machine).error());
  SupervisorOptions options{.config = std::move(config),
                            .folder = RunFolder({}),
                            .peer_arguments = {},
                            .seat_arguments = {},
                            .peer_devices = {},
                            .restarts_max = flags.restarts};
  options.folder = RunFolder(options.config.run_folder());
  for (const std::string& flag : flags.emulate) {
    SWARMLINE_TRY(add_emulation(flag, options.config, options));
  }
  SWARMLINE_TRY(check_listen(*machine, options.config));
  SWARMLINE_TRY(check_devices(flags, options.config));
  options.peer_devices = devices_of(flags, *machine, options.config);
  if (!flags.peer_config.empty()) options.peer_arguments = {"--config", flags.peer_config};
  // Its config is this user's own: its peers may read what it names.
  if (machine->data_root.empty())
    options.peer_arguments.insert(options.peer_arguments.end(), {"--data-root", "/"});
  if (flags.threads) {
    options.peer_arguments.insert(options.peer_arguments.end(),
                                  {"--threads", std::to_string(*flags.threads)});
  }
  options.peer_arguments.insert(options.peer_arguments.end(),
                                {"--log-level", std::string(to_string(options.config.log.level))});
  return options;
}

// What the model says when its run has ended.
void print_sample(const RunFolder& folder) {
  const auto text = short_sample(folder.path());
  if (!text) return;
  std::printf("Its own words (swarmline generate %s):\n", shell_word(folder.path()).c_str());
  const std::string lines = printable_lines(*text);
  std::size_t at = 0;
  for (std::string_view rest = lines; !rest.empty() && at < kSampleLinesMax; ++at) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest = end < rest.size() ? rest.substr(end + 1) : std::string_view();
    std::printf("  %s\n", cut_columns(line, kSampleColumns).c_str());
  }
}

Result<int> run_launch(const LaunchFlags& flags) {
  auto config = load_config(flags.config);
  if (!config) return std::unexpected(std::move(config).error());
  if (flags.reference) {
    auto machine = machine_of(flags);
    if (!machine) return std::unexpected(std::move(machine).error());
    return run_reference_here({.config = std::move(*config),
                               .device = machine->device,
                               .threads = static_cast<int>(machine->threads),
                               .permute_sums = flags.permute_sums,
                               .mutate = flags.mutate,
                               .fresh = flags.fresh,
                               .checkpoint_folder = flags.checkpoint_out});
  }
  // What a user can have got wrong is said before any process starts.
  SWARMLINE_TRY(check_page_address(*config));
  SWARMLINE_TRY(enough_descriptors(*config, raise_descriptors()));
  auto data = open_run_data(*config, false);
  if (!data) return std::unexpected(std::move(data).error());
  SWARMLINE_TRY(stage_holdings(*config, data->model));
  auto options = swarm_options(flags, std::move(*config));
  if (!options) return std::unexpected(std::move(options).error());
  if (!flags.fresh) SWARMLINE_TRY(check_budget(options->config, options->folder));
  if (!flags.fresh) SWARMLINE_TRY(check_change(options->config, options->folder, *data));
  auto initial = find_initial_parameters(options->config, options->folder, flags.fresh);
  if (!initial) return std::unexpected(std::move(initial).error());
  SWARMLINE_TRY(restore_run(options->config, options->folder, flags.fresh));
  const auto start = options->folder.prepare_or_resume(options->config, flags.fresh);
  if (!start) return std::unexpected(start.error());
  std::printf("%s", describe_start(*start, options->folder, options->config).c_str());
  if (*start == RunStart::kFinished) return kExitDone;
  SWARMLINE_TRY(initial->write(options->config, options->folder));
  const RunFolder folder = options->folder;
  auto code = supervise(std::move(*options));
  if (code && *code == kExitDone) print_sample(folder);
  return code;
}

}  // namespace

void add_launch_command(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<LaunchFlags>();
  CLI::App* command =
      app.add_subcommand("launch", "Start a whole swarm on this machine and show it");
  add_config_flags(*command, flags->config);
  command->add_flag("--fresh", flags->fresh, "Move an older run of this name aside to NAME.1");
  command->add_option("--peer-config", flags->peer_config, "[peer] keys for every peer")
      ->type_name("PEER.TOML");
  command->add_option("--threads", flags->threads, "Compute threads of every peer")->type_name("N");
  CLI::Option* devices =
      command
          ->add_option("--devices", flags->devices,
                       "Compute devices of the peers, one for each, instead of peer.device; with "
                       "\"cuda\" there, peers take the machine's GPUs in turns")
          ->delimiter(',')
          ->type_name("DEVICE,...")
          ->allow_extra_args(false);
  command
      ->add_option("--emulate", flags->emulate,
                   "Make one peer's device take this long per forward and backward pass "
                   "(emulation); repeatable")
      ->type_name("STAGE:PEER=F_MS/B_MS")
      ->allow_extra_args(false);
  command
      ->add_option("--restarts", flags->restarts,
                   "Restart a process that keeps dying right after its start at most this many "
                   "times in a row; 0: never")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str()
      ->type_name("N");
  CLI::Option* reference =
      command
          ->add_flag("--reference", flags->reference,
                     "Run the same training in one process instead, into NAME-reference")
          ->excludes(devices);
  command
      ->add_option("--permute-sums", flags->permute_sums,
                   "Sum microbatches in an order drawn from this seed")
      ->needs(reference)
      ->type_name("SEED");
  command
      ->add_option("--checkpoint-out", flags->checkpoint_out,
                   "Output folder for the reference's checkpoint")
      ->needs(reference)
      ->type_name("FOLDER");
  command->add_option("--mutate", flags->mutate)->needs(reference)->group("");
  command->footer(
      "Ctrl-C finishes the open step, writes a checkpoint and ends; a second one leaves at once.\n"
      "The same command resumes from the newest checkpoint, whatever ended the run.\n"
      "A peer that dies is restarted; one that keeps dying right after its start is given up.\n"
      "Examples:\n"
      "  swarmline launch --example quickstart\n"
      "  swarmline launch configs/quickstart.toml\n"
      "  swarmline launch configs/quickstart.toml --name wide --set model.d_model=256\n"
      "  swarmline launch configs/quickstart.toml --set pipeline.stages=2 --set pipeline.peers=3\n"
      "  swarmline launch configs/quickstart.toml --set pipeline.stages=2 --set pipeline.peers=1 "
      "--devices cuda:0,cuda:1\n"
      "  swarmline launch configs/quickstart.toml --reference");
  command->callback([flags, &exit_code] {
    auto code = run_launch(*flags);
    exit_code = code ? *code : report_error(code.error());
  });
}

}  // namespace swarmline
