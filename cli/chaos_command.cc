#include <cstdio>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"
#include "cli/commands.h"
#include "cli/config_flags.h"
#include "console/exit_codes.h"
#include "engine/config/load.h"
#include "engine/net/tcp/held_address.h"
#include "node/run_data.h"
#include "node/stage_table.h"
#include "tools/chaos/chaos_compare.h"
#include "tools/chaos/chaos_run.h"

namespace swarmline {
namespace {

struct ChaosFlags {
  ConfigFlags config;
  std::string plan;
  std::string peer_config;
  std::string against;
  double patience = 90;
  bool fresh = false;
  bool no_reference = false;
  bool json = false;
};

double speed_of(const PeerConfig& peer) {
  const double seconds = (peer.emulate_forward_ms + peer.emulate_backward_ms) / 1000;
  return seconds > 0 ? 1 / seconds : 0;
}

Result<int> run_command(const ChaosFlags& flags) {
  auto config = load_config(flags.config);
  if (!config) return std::unexpected(std::move(config).error());
  // Not the run that `launch` of the same config has left, or goes on with.
  if (flags.config.name.empty()) config->run.name += "-chaos";
  auto plan = load_chaos_plan(flags.plan);
  if (!plan) return std::unexpected(std::move(plan).error());
  SWARMLINE_TRY(check_chaos_plan(*plan, *config, flags.plan));
  const auto peer = load_peer_config(flags.peer_config);
  if (!peer) return std::unexpected(peer.error());
  if (const auto listen = parse_address(peer->listen); listen && listen->port != 0)
    return fail(ErrorCode::kUserMistake,
                fmt::format("--peer-config: peer.listen: found {}, but several peers start on this "
                            "machine; expected port 0 (any free one)",
                            peer->listen));
  // What a user can have got wrong is said before any process starts.
  const auto data = open_run_data(*config, false);
  if (!data) return std::unexpected(data.error());
  SWARMLINE_TRY(stage_holdings(*config, data->model));
  HeldAddress standby;
  if (plan->ends_coordinator() && config->net.standby.empty()) {
    auto address = standby.hold({"127.0.0.1", 0});
    if (!address) return std::unexpected(std::move(address).error());
    config->net.standby = {to_string(*address)};
  }
  const RunFolder folder(config->run_folder());
  SWARMLINE_TRY(folder.prepare(to_toml(*config), flags.fresh));
  init_log({.level = LogLevel::kError, .file = {}, .prefix = {}});
  std::vector<std::string> arguments{"--log-level", std::string(to_string(config->log.level))};
  if (!flags.peer_config.empty())
    arguments.insert(arguments.end(), {"--config", flags.peer_config});
  if (peer->data_root.empty()) arguments.insert(arguments.end(), {"--data-root", "/"});
  auto result = run_chaos({.config = *config,
                           .plan = std::move(*plan),
                           .folder = folder,
                           .peer_arguments = std::move(arguments),
                           .peer_speed = speed_of(*peer),
                           .patience_seconds = flags.patience,
                           .says = !flags.json});
  if (!result) return std::unexpected(std::move(result).error());
  if (!result->finished) {
    result->comparison.sentence = "the run did not finish";
  } else if (flags.no_reference) {
    result->comparison.sentence = "--no-reference";
  } else {
    auto comparison = compare_with_reference({.config = *config, .reference = flags.against});
    if (!comparison) return std::unexpected(std::move(comparison).error());
    result->comparison = std::move(*comparison);
  }
  std::fputs((flags.json ? chaos_json(*result) : chaos_text(*result)).c_str(), stdout);
  return result->good() ? kExitDone : kExitFailed;
}

}  // namespace

void add_chaos_command(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<ChaosFlags>();
  CLI::App* command = app.add_subcommand(
      "chaos",
      "Inject faults into a real run and check that the result still matches the reference");
  add_config_flags(*command, flags->config);
  command->add_option("--plan", flags->plan, "Faults to inject, and when (docs/formats/chaos.md)")
      ->required()
      ->type_name("PLAN.toml");
  command->add_option("--peer-config", flags->peer_config, "[peer] keys for every peer")
      ->type_name("PEER.TOML");
  command
      ->add_option("--against", flags->against,
                   "Compare with this run or checkpoint instead of a new reference run")
      ->type_name("RUN");
  command
      ->add_option("--patience", flags->patience,
                   "Seconds without a commit after which the run counts as stuck")
      ->check(CLI::Range(1.0, 1e6))
      ->type_name("S");
  command->add_flag("--fresh", flags->fresh, "Move an older run of this name aside to NAME.1");
  command->add_flag("--no-reference", flags->no_reference, "Compare the result with nothing");
  command->add_flag("--json", flags->json, "Machine-readable output (docs/formats/chaos.md)");
  command->footer(
      "Starts the run's coordinator and peers on this machine. Exit code 0 when the run finished,\n"
      "everything planned was done and the parameters are the reference's; 1 when not.\n"
      "The run folder is NAME-chaos, unless --name says otherwise.\n"
      "Example:\n"
      "  swarmline chaos configs/tiny.toml --set model.dtype=fp64 --plan configs/chaos/tiny.toml");
  command->callback([flags, &exit_code] {
    const auto code = run_command(*flags);
    exit_code = code ? *code : report_error(code.error());
  });
}

}  // namespace swarmline
