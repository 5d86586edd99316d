#include <cstdio>
#include <utility>

#include "base/log.h"
#include "cli/commands.h"
#include "cli/config_flags.h"
#include "console/exit_codes.h"
#include "engine/config/link_security.h"
#include "engine/net/tcp/held_address.h"
#include "node/coordinator_node.h"
#include "node/summary.h"

namespace swarmline {
namespace {

struct CoordinatorFlags {
  ConfigFlags config;
  bool fresh = false;
  bool prepared = false;
  bool standby = false;
};

// `page`: its URL; empty: none.
void say_where(const RunConfig& config, const Address& bound, const std::string& join,
               const std::string& page) {
  std::printf("coordinator of %s listens on %s\n", config.run.name.c_str(),
              to_string(bound).c_str());
  const bool plain = !wants_keys(config) && !is_loopback(bound.host);
  std::printf("a machine joins by:\nswarmline peer --join '%s'%s\n", join.c_str(),
              plain ? " --insecure" : "");
  if (!page.empty()) std::printf("its page: %s\n", page.c_str());
  std::fflush(stdout);
}

// Its port is in nobody's way until the day that it is needed; a standby of the same machine may
// share the leader's, and has it when that one is gone.
void hold_address(HeldAddress& held, const RunConfig& config) {
  const auto listen = parse_address(config.net.listen);
  if (!listen || listen->port == 0) return;
  if (const auto bound = held.hold(*listen); !bound)
    log(LogLevel::kWarn,
        "this standby {}: it can lead only if that has changed when it is its turn",
        bound.error().what);
}

Result<int> run_coordinator(const CoordinatorFlags& flags, const NetworkFactory& network) {
  auto loaded = load_config(flags.config);
  if (!loaded) return std::unexpected(std::move(loaded).error());
  const RunConfig& config = *loaded;
  init_log({.level = config.log.level, .file = {}, .prefix = "coordinator"});

  HeldAddress held;
  if (flags.standby) hold_address(held, config);
  AsioRuntime runtime;
  Result<RunOutcome> outcome;
  bool begun = !flags.standby;
  const RunFolder folder(config.run_folder());
  CoordinatorNode node(runtime,
                       {.config = config,
                        .fresh = flags.fresh,
                        .prepared = flags.prepared,
                        .standby = flags.standby,
                        .network = network},
                       {.on_begun =
                            [&](RunStart start) {
                              begun = true;
                              std::printf("%s", describe_start(start, folder, config).c_str());
                            },
                        .on_standing_by =
                            [&] {
                              std::printf("standing by for %s\n", config.run.name.c_str());
                              std::fflush(stdout);
                            },
                        .on_listening =
                            [&](const Address& bound, const std::string& join) {
                              // What launch starts writes to a log that others may read.
                              say_where(config, bound, join, flags.prepared ? "" : node.page_url());
                            },
                        .on_finished =
                            [&](Result<RunOutcome> ended) {
                              outcome = std::move(ended);
                              runtime.request_stop();
                            }});
  SWARMLINE_TRY(node.open());
  runtime.on_signals([&](int) { node.request_stop(); });
  node.start();
  runtime.run();
  if (!outcome) return std::unexpected(std::move(outcome).error());
  if (!begun) std::printf("not needed\n");
  if (!outcome->sentence.empty()) std::printf("%s\n", outcome->sentence.c_str());
  return outcome->exit_code;
}

}  // namespace

void add_coordinator_command(CLI::App& app, int& exit_code, NetworkFactory network) {
  auto flags = std::make_shared<CoordinatorFlags>();
  CLI::App* command =
      app.add_subcommand("coordinator", "Run only the control process of a run; peers join it");
  add_config_flags(*command, flags->config);
  add_coordinator_flags(*command, flags->config);
  command->add_flag("--fresh", flags->fresh, "Move an older run of this name aside to NAME.1");
  command->add_flag("--prepared", flags->prepared, "The run folder was made by launch")->group("");
  command
      ->add_flag("--standby", flags->standby,
                 "Wait until no coordinator leads this run, then take it over")
      ->excludes("--fresh");
  command->footer(
      "It writes its address to coordinator.address in the run folder. SIGINT or SIGTERM ends the\n"
      "run after the open step with a checkpoint; a second one ends it at once. The same command\n"
      "resumes from the newest checkpoint. If it died, its peers keep what they hold meanwhile,\n"
      "and it continues with them.\n"
      "Example: swarmline coordinator run.toml --listen 127.0.0.1:7400");
  command->callback([flags, &exit_code, network = std::move(network)] {
    auto code = run_coordinator(*flags, network);
    exit_code = code ? *code : report_error(code.error());
  });
}

}  // namespace swarmline
