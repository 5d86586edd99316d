#include <cstdio>

#include "cli/commands.h"
#include "console/exit_codes.h"
#include "engine/checkpoint/checkpoint_diff.h"

namespace swarmline {

void add_checkpoint_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("checkpoint", "Inspect saved models");
  command->require_subcommand(1);

  struct Flags {
    std::string a, b;
    bool json = false;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* diff = command->add_subcommand(
      "diff", "Show the largest differences between two models, tensor by tensor");
  const char* what = "A run folder, a checkpoints/step-N folder or a .safetensors file";
  diff->add_option("a", flags->a, what)->required()->type_name("A");
  diff->add_option("b", flags->b, what)->required()->type_name("B");
  diff->add_flag("--json", flags->json, "Machine-readable output (docs/formats/checkpoint.md)");
  diff->footer(
      "The two may have been cut into different numbers of stages. Exit code 0 whatever the\n"
      "differences, 1 when a tensor is in one only or has another shape.\n"
      "Example: swarmline checkpoint diff runs/quickstart runs/quickstart-reference");
  diff->callback([flags, &exit_code] {
    auto result = diff_checkpoints(flags->a, flags->b);
    if (!result) {
      exit_code = report_error(result.error());
      return;
    }
    std::fputs((flags->json ? to_json(*result) : to_text(*result)).c_str(), stdout);
    exit_code = result->same_tensors() ? kExitDone : kExitFailed;
  });
}

}  // namespace swarmline
