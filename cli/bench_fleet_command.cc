#include <cstdio>
#include <memory>

#include "cli/commands.h"
#include "console/exit_codes.h"
#include "tools/predict/bench_fleet_file.h"
#include "tools/predict/bench_fleet_report.h"

namespace swarmline {
namespace {

struct FleetFlags {
  std::string file;
  std::string status;
  bool json = false;
};

Result<std::string> bench_fleet(const FleetFlags& flags) {
  const auto question = load_fleet_question(flags.file, flags.status);
  if (!question) return std::unexpected(question.error());
  const auto prediction = predict_fleet(*question);
  if (!prediction) {
    return fail(prediction.error().code, flags.file + ": " + prediction.error().what);
  }
  const auto changes = fleet_changes(*question, *prediction);
  return flags.json ? fleet_prediction_json(*question, *prediction, changes)
                    : fleet_prediction_text(*question, *prediction, changes);
}

}  // namespace

void add_bench_fleet_command(CLI::App& bench, int& exit_code) {
  auto flags = std::make_shared<FleetFlags>();
  CLI::App* command = bench.add_subcommand(
      "fleet", "Tokens/s, bottleneck and price of a run on a fleet, before it is rented");
  command
      ->add_option("file", flags->file, "Devices, links and the run (docs/formats/fleet_prices.md)")
      ->required()
      ->type_name("FLEET.toml");
  command
      ->add_option(
          "--status", flags->status,
          "Take the peers from a running run instead: what \"swarmline status --json\" printed")
      ->type_name("FILE");
  command->add_flag("--json", flags->json, "Machine-readable output (docs/formats/bench.md)");
  command->footer(
      "What it counts, and how close it comes: docs/fleet.md.\n"
      "Examples:\n"
      "  swarmline bench fleet configs/fleets/t4_and_a100.toml\n"
      "  swarmline bench fleet prices.toml --status status.json");
  command->callback([flags, &exit_code] {
    const auto text = bench_fleet(*flags);
    if (text) std::fputs(text->c_str(), stdout);
    exit_code = text ? kExitDone : report_error(text.error());
  });
}

}  // namespace swarmline
