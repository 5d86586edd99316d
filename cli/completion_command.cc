#include <cstdio>
#include <memory>
#include <string>

#include "cli/bash_completion.h"
#include "cli/command_tree.h"
#include "cli/commands.h"
#include "cli/fish_completion.h"
#include "cli/zsh_completion.h"

namespace swarmline {

void add_completion_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("completion", "Print a script that completes commands in your shell");
  auto shell = std::make_shared<std::string>();
  command->add_option("shell", *shell, "The shell")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command->footer(
      "Add the line for your shell to the file that it reads when it starts. \"cmake --install\" "
      "puts "
      "the\nsame scripts below share/, where shells find them if the prefix is the system's.\n"
      "Examples:\n"
      "  source <(swarmline completion bash)\n"
      "  source <(swarmline completion zsh)\n"
      "  swarmline completion fish | source");
  command->callback([&app, shell] {
    const auto tree = command_tree(app);
    const std::string script = *shell == "bash"  ? bash_completion(tree)
                               : *shell == "zsh" ? zsh_completion(tree)
                                                 : fish_completion(tree);
    std::fputs(script.c_str(), stdout);
  });
}

}  // namespace swarmline
