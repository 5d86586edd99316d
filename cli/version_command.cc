#include <cstdio>

#include "cli/commands.h"

namespace swarmline {

void add_version_command(CLI::App& app, int&) {
  CLI::App* command = app.add_subcommand("version", "Print the program's version");
  command->callback([] { std::puts("swarmline " SWARMLINE_VERSION); });
}

}  // namespace swarmline
