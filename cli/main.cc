#include <csignal>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/nearest.h"
#include "base/printable.h"
#include "cli/commands.h"
#include "cli/model_commands.h"
#include "console/exit_codes.h"
#include "engine/net/ucx/ucx_backend.h"

namespace swarmline {
namespace {

constexpr const char* kAbout =
    "Swarmline trains one large model on many unreliable, unequal machines.\n"
    "The model is cut into stages; every stage is served by several interchangeable peers.";

constexpr const char* kExamples =
    R"(Examples:
  swarmline launch --example quickstart         a whole swarm on this machine
  swarmline launch run.toml --set run.steps=50  the same with one key overridden
  swarmline launch run.toml --reference         the same run in one process, without a swarm
  swarmline config check run.toml               check a config without starting the run
  swarmline data prepare a.txt --out data/a     make tokens of texts, for runs to train on
  swarmline memory run.toml                     what a peer of each stage takes of memory
  swarmline doctor run.toml                     whether this machine can run it
  swarmline status runs/quickstart              how a run is doing
  swarmline show runs/quickstart                its page in a browser, also when it is over
  swarmline stop runs/quickstart                finish the step, write a checkpoint, end
  swarmline checkpoint diff runs/a runs/b       how far two models are apart
  swarmline generate runs/quickstart --prompt "def "   text from a saved model
  swarmline export runs/quickstart --format hf --out DIR   for Hugging Face transformers
  swarmline bench codec                         what each codec costs on this machine
  swarmline plan swarm.json                     what the balancer would do with a swarm, and why
  swarmline simulate configs/scenarios/cloud.toml   a run on hardware you don't have
  swarmline chaos run.toml --plan plan.toml     inject faults and compare the result
  swarmline link-proxy --to HOST:PORT --both "rate=100M delay=20ms"   emulate a slow link
On several machines:
  swarmline coordinator run.toml                on one of them
  swarmline peer --join 'swarm1...@HOST:PORT'   on each other one: the line that the first prints
  swarmline relay --join 'swarm1...@HOST:PORT'  for peers that can't reach each other
  swarmline invite runs/NAME --ttl 1h --uses 3  another join string
  swarmline keys runs/NAME                      the run's key, and who has joined

Exit codes: 0 done or drained, 1 failed, 2 usage or config error, 3 refused,
130 interrupted.)";

// Empty, where nothing is near.
std::string did_you_mean(const std::string& word, const std::vector<std::string>& names) {
  const std::vector<std::string_view> known(names.begin(), names.end());
  const std::string_view meant = nearest(word, known);
  return meant.empty() ? "" : fmt::format(", did you mean {}?", meant);
}

// The command that was chosen, as it was written: "swarmline keys rotate".
std::string chosen_command(const CLI::App& app, const CLI::App*& command) {
  std::string name = "swarmline";
  for (command = &app; !command->get_subcommands().empty();) {
    command = command->get_subcommands().front();
    name += " " + command->get_name();
  }
  return name;
}

// CLI11 would list all such words, the last one first.
std::string unexpected(const std::string& word, const CLI::App& command, const std::string& name) {
  if (word.empty() || word.front() != '-')
    return fmt::format("\"{}\" takes no further word, found \"{}\"", name, word);
  std::vector<std::string> options;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& known : option->get_lnames()) options.push_back("--" + known);
  return fmt::format("\"{}\" has no option {}{}", name, word, did_you_mean(word, options));
}

int report_unknown_command(const std::string& word, const CLI::App& of, const std::string& name) {
  std::vector<std::string> names;
  for (const CLI::App* command : of.get_subcommands([](const CLI::App* known) {
         return !known->get_group().empty();  // not hidden
       }))
    names.push_back(command->get_name());
  const std::string full = name == "swarmline" ? word : name.substr(10) + " " + word;
  std::fprintf(stderr, "swarmline: there is no command \"%s\"%s; \"%s --help\" lists all\n",
               printable_lines(full).c_str(), did_you_mean(word, names).c_str(), name.c_str());
  return kExitUserMistake;
}

// CLI11 calls a mistyped command an unexpected argument.
int report_parse_error(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  const std::string word = argc > 1 ? argv[1] : "";
  if (!chosen.empty() || word.empty() || word.front() == '-') {
    const CLI::App* command = nullptr;
    const std::string name = chosen_command(app, command);
    const std::vector<std::string> extras = app.remaining(true);
    const std::string what =
        extras.empty() ? std::string(error.what()) : unexpected(extras.front(), *command, name);
    std::fprintf(stderr, "swarmline: %s; \"%s --help\" lists its options\n",
                 printable_lines(what).c_str(), name.c_str());
    return kExitUserMistake;
  }
  return report_unknown_command(word, app, "swarmline");
}

int run(int argc, char** argv) {
  set_ucx_environment();
  CLI::App app(kAbout, "swarmline");
  app.set_version_flag("-V,--version", "swarmline " SWARMLINE_VERSION);
  app.require_subcommand(0, 1);
  app.get_formatter()->column_width(34);

  int exit_code = kExitDone;
  add_launch_command(app, exit_code);
  add_coordinator_command(app, exit_code, make_tcp_network);
  add_peer_command(app, exit_code, make_tcp_network);
  add_relay_command(app, exit_code);
  add_status_command(app, exit_code);
  add_show_command(app, exit_code);
  add_stop_command(app, exit_code);
  add_invite_command(app, exit_code);
  add_keys_command(app, exit_code);
  add_checkpoint_command(app, exit_code);
  add_export_command(app, exit_code);
  add_eval_command(app, exit_code);
  add_generate_command(app, exit_code);
  add_config_command(app, exit_code);
  add_data_command(app, exit_code);
  add_memory_command(app, exit_code);
  add_doctor_command(app, exit_code);
  add_link_proxy_command(app, exit_code);
  add_plot_command(app, exit_code);
  add_plan_command(app, exit_code);
  add_fleet_command(app, exit_code);
  add_simulate_command(app, exit_code);
  add_chaos_command(app, exit_code);
  add_tapped_command(app, exit_code);
  add_bench_command(app, exit_code);
  add_version_command(app, exit_code);
  add_completion_command(app);
  add_help_command(app, exit_code);
  app.footer(kExamples);  // the commands have their own

  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    // A word that is no command of a group must not look as if it were one.
    const CLI::App* command = nullptr;
    const std::string name = chosen_command(app, command);
    const std::vector<std::string> extras = app.remaining(true);
    const bool group = command != &app && !command->get_subcommands({}).empty();
    if (group && !extras.empty() && extras.front().front() != '-')
      return report_unknown_command(extras.front(), *command, name);
    return app.exit(help);
  } catch (const CLI::Success& version) {
    return app.exit(version);
  } catch (const CLI::ParseError& error) {
    return report_parse_error(app, error, argc, argv);
  }
  if (app.get_subcommands().empty()) {
    std::fputs(app.help().c_str(), stderr);
    std::fputs("\nswarmline: no command given; try \"swarmline launch --example quickstart\".\n",
               stderr);
    return kExitUserMistake;
  }
  return exit_code;
}

}  // namespace
}  // namespace swarmline

int main(int argc, char** argv) {
  // A file that may not grow is an error to write to, as on a full disk, and not the end.
  std::signal(SIGXFSZ, SIG_IGN);
  return swarmline::run(argc, argv);
}
