#include <algorithm>
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
#include "console/exit_codes.h"
#include "engine/model/stage_model.h"
#include "node/peer_node.h"

namespace swarmline {
namespace {

struct PeerCommandFlags {
  std::string join;
  std::string name;
  std::string log_level = "info";
  PeerFlags machine;
};

Result<std::vector<Address>> coordinators_of(const std::string& join) {
  std::vector<Address> addresses;
  std::string_view rest = join;
  do {
    const std::size_t end = std::min(rest.find(','), rest.size());
    auto address = parse_address(rest.substr(0, end));
    if (!address)
      return fail(ErrorCode::kUserMistake,
                  fmt::format("--join {}: expected HOST:PORT of a coordinator, or several parted "
                              "by commas, e.g. 127.0.0.1:7400",
                              join));
    addresses.push_back(std::move(*address));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  } while (!rest.empty());
  return addresses;
}

Result<int> run_peer(const PeerCommandFlags& flags, const NetworkFactory& network) {
  auto coordinators = coordinators_of(flags.join);
  if (!coordinators) return std::unexpected(std::move(coordinators).error());
  auto machine = load_peer(flags.machine);
  if (!machine) return std::unexpected(std::move(machine).error());
  const std::string name = flags.name.empty() ? fmt::format("peer-{}", ::getpid()) : flags.name;
  if (name.size() > Limits::name_bytes_max || !is_printable(name))
    return fail(ErrorCode::kUserMistake,
                fmt::format("--name: found \"{}\", expected at most {} printable ASCII characters; "
                            "use a shorter or plainer name",
                            printable(name, Limits::name_bytes_max), Limits::name_bytes_max));
  const LogLevel level = parse_log_level(flags.log_level).value_or(LogLevel::kInfo);
  init_log({.level = level, .file = {}, .prefix = name});

  set_compute_threads(static_cast<int>(machine->threads));
  AsioRuntime runtime;
  PeerOutcome outcome;
  PeerNode node(runtime,
                {.coordinators = std::move(*coordinators),
                 .machine = *machine,
                 .name = name,
                 .make_model = make_stage_model,
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
  CLI::App* command = app.add_subcommand("peer", "Help a run: serve one stage on this machine");
  command->add_option("--join", flags->join, "The run's coordinator, and its standbys")
      ->required()
      ->type_name("HOST:PORT[,...]");
  command->add_option("--name", flags->name, "For people; default: peer-PID")->type_name("NAME");
  command->add_option("--log-level", flags->log_level, "debug, info, warn or error")
      ->check(CLI::IsMember({"debug", "info", "warn", "error"}))
      ->type_name("LEVEL");
  add_peer_flags(*command, flags->machine);
  command->footer(
      "The coordinator sends the run's config and chooses the stage; a peer of stage 0 reads the\n"
      "data, whose files must be at the same paths on its machine, below --data-root.\n"
      "Example: swarmline peer --join 127.0.0.1:7400 --threads 4");
  command->callback([flags, &exit_code, network = std::move(network)] {
    auto code = run_peer(*flags, network);
    exit_code = code ? *code : report_error(code.error());
  });
}

}  // namespace swarmline
