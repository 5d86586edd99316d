#include <memory>
#include <string>
#include <utility>

#include "cli/commands.h"
#include "tools/chaos/chaos_tap.h"

namespace swarmline {

// `swarmline chaos` starts its processes by it: coordinators and peers as ever, but for their
// network.
void add_tapped_command(CLI::App& app, int& exit_code) {
  auto parent = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("tapped", "Run a process that a chaos run steers");
  command->group("");
  command->add_option("--parent", *parent, "The chaos run")->required()->type_name("HOST:PORT");
  command->require_subcommand(1);
  const NetworkFactory network = [parent](AsioRuntime& runtime, NetworkUser user) {
    return make_tapped_network(runtime, *parent, std::move(user));
  };
  add_coordinator_command(*command, exit_code, network);
  add_peer_command(*command, exit_code, network);
}

}  // namespace swarmline
