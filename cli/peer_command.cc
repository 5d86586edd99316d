#include <algorithm>
#include <csignal>
#include <cstdio>
#include <optional>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "base/rng.h"
#include "cli/chaos_tap.h"
#include "cli/commands.h"
#include "cli/config_flags.h"
#include "cli/exit_codes.h"
#include "cli/run_data.h"
#include "engine/device/cpu_device.h"
#include "engine/runtime/asio_runtime.h"
#include "pipeline/stage/stage_peer.h"

namespace swarmline {
namespace {

// Last words reach the coordinator and the neighbours.
// What clouds give a spot machine before it is taken, less a little.
constexpr Duration kNotice = std::chrono::seconds(28);
constexpr Duration kLinger = std::chrono::milliseconds(300);

struct PeerCommandFlags {
  std::string join;
  std::string name;
  std::string log_level = "info";
  std::string chaos;
  PeerFlags machine;
};

Duration from_ms(double ms) {
  return from_seconds(ms / 1000);
}

Result<std::unique_ptr<MicrobatchSource>> open_source(const RunConfig& config) {
  auto dataset = open_dataset(config);
  if (!dataset) return std::unexpected(std::move(dataset).error());
  return make_dataset_source(config, std::move(*dataset));
}

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

Result<int> run_peer(const PeerCommandFlags& flags) {
  auto coordinators = coordinators_of(flags.join);
  if (!coordinators) return std::unexpected(std::move(coordinators).error());
  auto machine = load_peer(flags.machine);
  if (!machine) return std::unexpected(std::move(machine).error());
  const std::string name = flags.name.empty() ? fmt::format("peer-{}", ::getpid()) : flags.name;
  init_log({.level = log_level_of(flags.log_level), .file = {}, .prefix = name});

  set_compute_threads(static_cast<int>(machine->threads));
  AsioRuntime runtime;
  CpuDevice device(runtime, {.name = machine->device,
                             .emulation = {.forward = from_ms(machine->emulate_forward_ms),
                                           .backward = from_ms(machine->emulate_backward_ms),
                                           .jitter = machine->emulate_jitter},
                             .seed = hash_name(name),
                             .on_thread_start = {}});
  auto network = open_network(runtime, flags.chaos, name,
                              [&device](double factor) { device.slow_down(factor); });
  if (!network) return std::unexpected(std::move(network).error());
  PeerOutcome outcome;
  StagePeer peer(runtime, **network, device,
                 {.coordinator = coordinators->front(),
                  .standby = {coordinators->begin() + 1, coordinators->end()},
                  .machine = *machine,
                  .name = name,
                  .make_source = open_source,
                  .make_model = make_stage_model},
                 [&](PeerOutcome ended) {
                   outcome = std::move(ended);
                   runtime.call_after(kLinger, [&] { runtime.request_stop(); });
                 });
  bool leaving = false;
  runtime.on_signals([&](int signal) {
    if (signal == SIGTERM && !std::exchange(leaving, true))
      peer.request_drain(kNotice);
    else
      peer.request_stop();
  });
  peer.start();
  runtime.run();
  device.stop();
  if (outcome.exit_code == kExitDone) {
    std::printf("%s\n", outcome.sentence.c_str());
  } else {
    std::fprintf(stderr, "swarmline: %s\n", outcome.sentence.c_str());
  }
  return outcome.exit_code;
}

}  // namespace

void add_peer_command(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<PeerCommandFlags>();
  CLI::App* command = app.add_subcommand("peer", "Help a run: serve one stage on this machine");
  command->add_option("--join", flags->join, "The run's coordinator, and its standbys")
      ->required()
      ->type_name("HOST:PORT[,...]");
  command->add_option("--name", flags->name, "For people; default: peer-PID")->type_name("NAME");
  command->add_option("--log-level", flags->log_level, "debug, info, warn or error")
      ->check(CLI::IsMember({"debug", "info", "warn", "error"}))
      ->type_name("LEVEL");
  command->add_option("--chaos", flags->chaos)->group("");  // by swarmline chaos
  add_peer_flags(*command, flags->machine);
  command->footer(
      "The coordinator sends the run's config and chooses the stage; a peer of stage 0 reads the\n"
      "data, whose files must be at the same paths on its machine.\n"
      "Example: swarmline peer --join 127.0.0.1:7400 --threads 4");
  command->callback([flags, &exit_code] {
    auto code = run_peer(*flags);
    exit_code = code ? *code : report_error(code.error());
  });
}

}  // namespace swarmline
