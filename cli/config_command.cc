#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/config_flags.h"
#include "cli/examples.h"
#include "console/exit_codes.h"
#include "node/stage_table.h"

namespace swarmline {
namespace {

Result<std::string> check(const ConfigFlags& flags, bool json) {
  auto config = load_config(flags);
  if (!config) return std::unexpected(std::move(config).error());
  auto found = check_config(std::move(*config));
  if (!found) return std::unexpected(std::move(found).error());
  return json ? check_json(*found) : check_text(*found);
}

}  // namespace

namespace {

void add_example_command(CLI::App& config, int& exit_code) {
  CLI::App* command = config.add_subcommand(
      "example", "Print a built-in run's config, as it was written, to begin your own with");
  auto name = std::make_shared<std::string>();
  command->add_option("name", *name, "Example to print; default: list them")
      ->type_name(fmt::format("{{{}}}", names_of_examples(",")));
  command->footer("Example: swarmline config example quickstart >run.toml");
  command->callback([name, &exit_code] {
    if (name->empty()) {
      std::fputs(list_of_examples().c_str(), stdout);
      return;
    }
    const auto example = find_example(*name);
    if (example) std::fputs(std::string(example->text).c_str(), stdout);
    exit_code = example ? kExitDone : report_error(example.error());
  });
}

}  // namespace

void add_config_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("config", "Inspect a run's config");
  command->require_subcommand(1);
  add_example_command(*command, exit_code);

  struct Flags {
    ConfigFlags config;
    bool json = false;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* check_command = command->add_subcommand(
      "check", "Print every key with its value, and what each stage will hold");
  add_config_flags(*check_command, flags->config);
  check_command->add_flag("--json", flags->json,
                          "Machine-readable output (docs/formats/config_check.md)");
  check_command->footer(
      "The output is a config itself. The data need not be on this machine: what could not be\n"
      "checked without it is said. Mistakes are one sentence: file, line, key, what was\n"
      "expected; exit code 2.\n"
      "Example: swarmline config check --example quickstart --set pipeline.stages=2");
  check_command->callback([flags, &exit_code] {
    auto text = check(flags->config, flags->json);
    if (text) std::fputs(text->c_str(), stdout);
    exit_code = text ? kExitDone : report_error(text.error());
  });
}

}  // namespace swarmline
