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
#include "node/relay_node.h"

namespace swarmline {
namespace {

constexpr double kMegabyte = 1e6;
constexpr std::uint32_t kLinksMax = 4096;

struct RelayFlags {
  std::string join;
  std::string name;
  std::string listen;
  std::string advertise;
  std::uint32_t links = RelayBounds().links_max;
  double megabytes_per_second = 0;
  bool insecure = false;
};

Result<RelayNodeOptions> options_of(const RelayFlags& flags, AsioRuntime& runtime) {
  PeerConfig machine;
  machine.insecure = flags.insecure;
  if (!flags.listen.empty()) machine.listen = flags.listen;
  auto target = join_target(flags.join, machine);
  if (!target) return std::unexpected(std::move(target).error());
  const auto listen = parse_address(machine.listen);
  if (!listen)
    return fail(ErrorCode::kUserMistake, fmt::format("--listen: {}", listen.error().what));
  if (!flags.advertise.empty() && !parse_address(flags.advertise))
    return fail(ErrorCode::kUserMistake,
                fmt::format("--advertise: found \"{}\", expected HOST:PORT", flags.advertise));
  const std::string name = flags.name.empty() ? fmt::format("relay-{}", ::getpid()) : flags.name;
  if (name.size() > Limits::name_bytes_max || !is_printable(name))
    return fail(ErrorCode::kUserMistake,
                fmt::format("--name: expected at most {} printable ASCII characters",
                            Limits::name_bytes_max));
  RelayNodeOptions options;
  options.role = {.coordinators = std::move(target->coordinators),
                  .name = name,
                  .listen = *listen,
                  .advertise = flags.advertise,
                  .bounds = {.links_max = flags.links,
                             .bytes_per_second = flags.megabytes_per_second * kMegabyte}};
  if (target->invite)
    options.guard = std::make_shared<PeerGuard>(Identity::make(), *target->invite, runtime);
  return options;
}

Result<int> run_relay(const RelayFlags& flags) {
  AsioRuntime runtime;
  auto options = options_of(flags, runtime);
  if (!options) return std::unexpected(std::move(options).error());
  init_log({.level = LogLevel::kInfo, .file = {}, .prefix = options->role.name});
  int exit_code = kExitDone;
  std::string sentence;
  RelayNode node(runtime, std::move(*options), [&](int code, const std::string& why) {
    exit_code = code;
    sentence = why;
    runtime.request_stop();
  });
  SWARMLINE_TRY(node.open());
  runtime.on_signals([&](int) { node.request_stop(); });
  node.start();
  runtime.run();
  const RelayDoor::Counters passed = node.counters();
  log(LogLevel::kInfo, "relayed {} links, {:.1f} MB", passed.links_ever,
      static_cast<double>(passed.bytes) / kMegabyte);
  if (exit_code == kExitUserMistake)
    sentence += "; give another address by --listen HOST:PORT (port 0: any free one)";
  if (exit_code == kExitDone) {
    std::printf("%s\n", printable_lines(sentence).c_str());
  } else {
    std::fprintf(stderr, "swarmline: %s\n", printable_lines(sentence).c_str());
  }
  return exit_code;
}

}  // namespace

void add_relay_command(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<RelayFlags>();
  CLI::App* command =
      app.add_subcommand("relay", "Pass on links between peers that can't reach each other");
  command
      ->add_option("--join", flags->join,
                   "What the coordinator prints, as for a peer. Default: the variable "
                   "SWARMLINE_JOIN")
      ->type_name("swarm1...");
  command->add_option("--name", flags->name, "Display name; default: relay-PID")->type_name("NAME");
  command
      ->add_option("--listen", flags->listen,
                   "Address to listen on; default: any free port, on all addresses if the "
                   "coordinator is on another machine")
      ->type_name("HOST:PORT");
  command
      ->add_option("--advertise", flags->advertise,
                   "Address that peers dial; default: the one that the coordinator is reached from")
      ->type_name("HOST:PORT");
  command->add_option("--links", flags->links, "Maximum number of links at a time")
      ->check(CLI::Range(1U, kLinksMax))
      ->capture_default_str();
  command
      ->add_option("--rate", flags->megabytes_per_second,
                   "Maximum MB/s over all links together; 0: unlimited")
      ->check(CLI::NonNegativeNumber);
  command->add_flag("--insecure", flags->insecure,
                    "Join another machine's run that has no keys, by HOST:PORT");
  command->footer(
      "A relay needs a port that both peers reach, and no data and no model. It passes on their\n"
      "own encrypted stream, which it can't read.\n"
      "Example:\n"
      "  swarmline relay --join 'swarm1...@node-1:7400' --listen 0.0.0.0:7401 --links 32");
  command->callback([flags, &exit_code] {
    auto code = run_relay(*flags);
    exit_code = code ? *code : report_error(code.error());
  });
}

}  // namespace swarmline
