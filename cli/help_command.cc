#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "cli/command_reference.h"
#include "cli/commands.h"
#include "console/exit_codes.h"

namespace swarmline {
namespace {

// As `swarmline WORDS --help` prints it. Empty: there is no such command.
std::string help_of(const CLI::App& app, const std::vector<std::string>& words) {
  const CLI::App* found = &app;
  std::string name = app.get_name();
  for (const std::string& word : words) {
    const CLI::App* next = nullptr;
    for (const CLI::App* command : found->get_subcommands([](const CLI::App*) { return true; }))
      if (command->get_name() == word) next = command;
    if (next == nullptr) return {};
    found = next;
    name += " " + word;
  }
  return found->get_formatter()->make_help(found, name, CLI::AppFormatMode::Normal);
}

}  // namespace

void add_help_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("help", "Explain a command");
  auto words = std::make_shared<std::vector<std::string>>();
  command->add_option("command", *words,
                      "Command to explain, e.g. launch or bench ratio; default: all");
  auto markdown = std::make_shared<bool>(false);
  command->add_flag("--markdown", *markdown)->group("");  // what docs/commands/ is made from
  command->callback([&app, &exit_code, words, markdown] {
    if (*markdown) {
      std::fputs(command_reference(app).c_str(), stdout);
      return;
    }
    const std::string help = help_of(app, *words);
    if (!help.empty()) {
      std::fputs(help.c_str(), stdout);
      return;
    }
    std::string said;
    for (const std::string& word : *words) said += (said.empty() ? "" : " ") + word;
    std::fprintf(stderr, "swarmline: there is no command \"%s\"; \"swarmline help\" lists all\n",
                 said.c_str());
    exit_code = kExitUserMistake;
  });
}

}  // namespace swarmline
