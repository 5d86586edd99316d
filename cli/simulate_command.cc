#include <cstdio>
#include <memory>

#include <fmt/format.h>

#include "base/log.h"
#include "cli/commands.h"
#include "console/exit_codes.h"
#include "console/screen.h"
#include "engine/store/files.h"
#include "tools/predict/simulate_report.h"

namespace swarmline {
namespace {

struct SimulateFlags {
  std::string scenario;
  std::optional<std::uint64_t> seed;
  std::string svg;
  bool log = false;
  bool json = false;
};

Result<int> run_simulation(const SimulateFlags& flags) {
  auto scenario = load_scenario(flags.scenario);
  if (!scenario) return std::unexpected(scenario.error());
  if (flags.seed) scenario->seed = *flags.seed;
  // What peers would say, one line each, is in --log.
  init_log({.level = LogLevel::kError, .file = {}, .prefix = {}});
  const bool live = output_is_terminal() && !flags.json;
  const auto result = simulate(*scenario, [&](double done) {
    if (live) fmt::print("\r{} {:3.0f} %", scenario->name, 100 * done);
    if (live) std::fflush(stdout);
  });
  if (live) fmt::print("\r\x1b[K");
  if (!result) return std::unexpected(result.error());
  if (flags.log && !flags.json)
    for (const std::string& line : result->log) fmt::print("{}\n", line);
  const std::string text = flags.json
                               ? simulation_json(*scenario, *result)
                               : simulation_text(*scenario, *result, terminal_style().columns);
  std::fputs(text.c_str(), stdout);
  if (!flags.svg.empty()) {
    const double tokens =
        static_cast<double>(scenario->run.batch.microbatch) * scenario->run.batch.sequence;
    SWARMLINE_TRY(write_text_file_atomically(flags.svg, to_svg(simulation_plot(*result, tokens))));
  }
  return result->ended_badly ? kExitFailed : kExitDone;
}

}  // namespace

void add_simulate_command(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<SimulateFlags>();
  CLI::App* command =
      app.add_subcommand("simulate", "Simulate a run on hardware you don't have, in virtual time");
  command
      ->add_option("scenario", flags->scenario,
                   "Machines, links and model of the simulated run (docs/formats/scenario.md)")
      ->required()
      ->type_name("SCENARIO.toml");
  command->add_option("--seed", flags->seed, "Random seed; default: the scenario's")
      ->type_name("N");
  command->add_option("--svg", flags->svg, "Write a plot of throughput over time to this file")
      ->type_name("FILE");
  command->add_flag("--log", flags->log, "Print what happened, and when");
  command->add_flag("--json", flags->json, "Machine-readable output (docs/formats/simulation.md)");
  command->footer(
      "docs/simulate.md says which parts are real and which are modelled.\n"
      "Examples:\n"
      "  swarmline simulate configs/scenarios/cloud.toml\n"
      "  swarmline simulate configs/scenarios/spot.toml --seed 2 --svg spot.svg");
  command->callback([flags, &exit_code] {
    const auto code = run_simulation(*flags);
    exit_code = code ? *code : report_error(code.error());
  });
}

}  // namespace swarmline
