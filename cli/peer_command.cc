#include <csignal>
#include <cstdio>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "base/limits.h"
#include "base/log.h"
#include "base/printable.h"
#include "cli/commands.h"
#include "cli/config_flags.h"
#include "cli/join_flags.h"
#include "console/exit_codes.h"
#include "engine/fabric/device_fabric.h"
#include "engine/identity/key_file.h"
#include "engine/model/stage_model.h"
#include "node/leadership.h"
#include "node/peer_node.h"

namespace swarmline {
namespace {

struct PeerCommandFlags {
  std::string join;
  std::string name;
  std::string log_level = "info";
  PeerFlags machine;
};

Result<std::shared_ptr<PeerGuard>> open_guard(const JoinTarget& target, const PeerConfig& machine,
                                              AsioRuntime& runtime) {
  if (!target.invite) return nullptr;
  auto key =
      machine.key.empty() ? Result<Identity>(Identity::make()) : load_or_make_key(machine.key);
  if (!key) return std::unexpected(std::move(key).error());
  return std::make_shared<PeerGuard>(std::move(*key), *target.invite, runtime);
}

// Unlike any peer's number in the run.
std::string automatic_name() {
  const std::string process = fmt::format("-{}", ::getpid());
  return printable(host_name(), Limits::name_bytes_max - process.size()) + process;
}

// Of a GPU. What can't be opened here is said when the model is made.
PeerFabric open_fabric(Runtime& runtime, const std::string& device) {
  if (free_device_memory(device) == 0) return {};
  std::string missing;
  DeviceFabricParts parts = device_fabric_parts(device, missing);
  if (!missing.empty()) log(LogLevel::kDebug, "sums from GPU to GPU: {}", missing);
  const GpuIdentity gpu = gpu_identity(device, parts);
  return {.door = std::make_unique<DeviceFabric>(runtime, std::move(parts)), .gpu = gpu};
}

Result<int> run_peer(const PeerCommandFlags& flags, const NetworkFactory& network) {
  auto machine = load_peer(flags.machine);
  if (!machine) return std::unexpected(std::move(machine).error());
  auto target = join_target(flags.join, *machine);
  if (!target) return std::unexpected(std::move(target).error());
  const std::string name = flags.name.empty() ? automatic_name() : flags.name;
  if (name.size() > Limits::name_bytes_max || !is_printable(name))
    return fail(ErrorCode::kUserMistake,
                fmt::format("--name: found \"{}\", expected at most {} printable ASCII characters; "
                            "use a shorter or plainer name",
                            printable(name, Limits::name_bytes_max), Limits::name_bytes_max));
  const LogLevel level = parse_log_level(flags.log_level).value_or(LogLevel::kInfo);
  init_log({.level = level, .file = {}, .prefix = name});

  set_compute_threads(static_cast<int>(machine->threads));
  AsioRuntime runtime;
  auto guard = open_guard(*target, *machine, runtime);
  if (!guard) return std::unexpected(std::move(guard).error());
  PeerOutcome outcome;
  PeerNode node(runtime,
                {.coordinators = std::move(target->coordinators),
                 .machine = *machine,
                 .name = name,
                 .guard = std::move(*guard),
                 .make_model = make_stage_model,
                 .free_device_memory = free_device_memory,
                 .make_fabric = open_fabric,
                 .network = network},
                [&](PeerOutcome ended) {
                  outcome = std::move(ended);
                  runtime.request_stop();
                });
  SWARMLINE_TRY(node.open());
  bool leaving = false;
  runtime.on_signals([&](int signal) {
    if (signal == SIGTERM && !std::exchange(leaving, true))
      node.request_drain();
    else
      node.request_stop();
  });
  node.start();
  runtime.run();
  if (outcome.exit_code == kExitDone) {
    std::printf("%s\n", printable_lines(outcome.sentence).c_str());  // the coordinator's
  } else {
    std::fprintf(stderr, "swarmline: %s\n", printable_lines(outcome.sentence).c_str());
  }
  return outcome.exit_code;
}

}  // namespace

void add_peer_command(CLI::App& app, int& exit_code, NetworkFactory network) {
  auto flags = std::make_shared<PeerCommandFlags>();
  CLI::App* command = app.add_subcommand("peer", "Join a run and serve one stage on this machine");
  command
      ->add_option(
          "--join", flags->join,
          "What its coordinator prints; a file that holds it; - for the standard input; or "
          "HOST:PORT[,...] on this machine. Default: the variable SWARMLINE_JOIN")
      ->type_name("swarm1...");
  command->add_option("--name", flags->name, "Display name; default: HOST-PID")->type_name("NAME");
  command->add_option("--log-level", flags->log_level, "debug, info, warn or error")
      ->check(CLI::IsMember({"debug", "info", "warn", "error"}))
      ->type_name("LEVEL");
  add_peer_flags(*command, flags->machine);
  command->footer(
      "The coordinator sends the run's config and chooses the stage. Peers of stage 0 read the "
      "data:\n"
      "files with the same names and contents as the coordinator's, at the same paths or in "
      "--data.\n"
      "A machine without them serves another stage, and one with different contents is refused;\n"
      "with --fetch-data both fetch what they need from peers that have it.\n"
      "Every user of the machine can read a command line: a file, the standard input or\n"
      "SWARMLINE_JOIN keep the join string private.\n"
      "Examples:\n"
      "  swarmline peer --join 'swarm1...@node-1:7400' --threads 4\n"
      "  swarmline peer --join 127.0.0.1:7400");
  command->callback([flags, &exit_code, network = std::move(network)] {
    auto code = run_peer(*flags, network);
    exit_code = code ? *code : report_error(code.error());
  });
}

}  // namespace swarmline
