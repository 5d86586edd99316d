#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "base/printable.h"
#include "cli/commands.h"
#include "cli/config_flags.h"
#include "compression/codec.h"
#include "console/exit_codes.h"
#include "engine/store/files.h"
#include "tools/measure/bench_machine.h"
#include "tools/plot/line_plot.h"
#include "tools/predict/fleet_plan_report.h"
#include "tools/predict/fleet_prediction_report.h"
#include "tools/predict/fleet_prices.h"

namespace swarmline {
namespace {

struct FleetPlanFlags {
  ConfigFlags config;
  std::string prices, status, trace, machine, svg;
  std::vector<std::uint32_t> stages, machines;
  std::vector<std::string> codecs;
  double least_tokens_per_second = 0;
  double notice_seconds = 0;
  bool background_checkpoints = false;
  bool json = false;
};

std::string origin_of(const FleetPlanFlags& flags) {
  return flags.config.path.empty() ? flags.config.example : flags.config.path;
}

Result<FleetQuestion> load_question(const FleetPlanFlags& flags) {
  const auto config = load_config(flags.config);
  if (!config) return std::unexpected(config.error());
  return load_fleet_question(*config, origin_of(flags), flags.prices, flags.status);
}

// What the machines that the file lists would train, if none was ever taken away.
Result<std::string> predict(const FleetPlanFlags& flags) {
  const auto question = load_question(flags);
  if (!question) return std::unexpected(question.error());
  const auto prediction = predict_fleet(*question);
  if (!prediction)
    return fail(prediction.error().code, flags.prices + ": " + prediction.error().what);
  const auto changes = fleet_changes(*question, *prediction);
  return flags.json ? fleet_prediction_json(*question, *prediction, changes)
                    : fleet_prediction_text(*question, *prediction, changes);
}

// The class that the trace's machines are of.
Result<void> choose_machine(const FleetPlanFlags& flags, FleetQuestion& question) {
  const auto named = [&](const FleetClass& c) { return c.name == flags.machine; };
  std::vector<std::string> names;
  for (const FleetClass& c : question.classes) names.push_back(c.name);
  if (flags.machine.empty() && names.size() > 1)
    return fail(ErrorCode::kUserMistake,
                fmt::format("{} has several classes of machines: say by --machine which of them "
                            "the trace is of ({})",
                            flags.prices, fmt::join(names, ", ")));
  if (!flags.machine.empty()) {
    std::erase_if(question.classes, [&](const FleetClass& c) { return !named(c); });
    if (question.classes.empty())
      return fail(ErrorCode::kUserMistake,
                  fmt::format("--machine {}: {} has no such class; expected one of {}",
                              flags.machine, flags.prices, fmt::join(names, ", ")));
  }
  return {};
}

Result<FleetPlanQuestion> plan_question(const FleetPlanFlags& flags) {
  for (const std::string& codec : flags.codecs)
    if (const auto known = parse_codec(codec); !known)
      return fail(ErrorCode::kUserMistake, "--codecs: " + known.error().what);
  auto fleet = load_question(flags);
  if (!fleet) return std::unexpected(fleet.error());
  SWARMLINE_TRY(choose_machine(flags, *fleet));
  auto trace = load_fleet(flags.trace);
  if (!trace) {
    const bool content = trace.error().code == ErrorCode::kCorrupt;
    return fail(content ? ErrorCode::kUserMistake : trace.error().code, trace.error().what);
  }
  return FleetPlanQuestion{.fleet = std::move(*fleet),
                           .trace = std::move(*trace),
                           .prices_path = flags.prices,
                           .trace_path = flags.trace,
                           .stages = flags.stages,
                           .machines = flags.machines,
                           .codecs = flags.codecs,
                           .least_tokens_per_second = flags.least_tokens_per_second,
                           .notice_seconds = flags.notice_seconds,
                           .background_checkpoints = flags.background_checkpoints};
}

Result<std::string> plan(const FleetPlanFlags& flags) {
  const auto question = plan_question(flags);
  if (!question) return std::unexpected(question.error());
  std::optional<BenchProgress> progress;
  const auto plan =
      plan_fleet(*question, [&](std::size_t number, std::size_t of, const std::string& what) {
        if (number == 0) progress.emplace(of);
        progress->begin(what);
      });
  if (progress) progress->clear();
  if (!plan) return std::unexpected(plan.error());
  const auto prediction = predict_fleet(plan->at_best);
  if (!prediction) return std::unexpected(prediction.error());
  const auto changes = fleet_changes(plan->at_best, *prediction);
  if (!flags.svg.empty())
    SWARMLINE_TRY(write_text_file_atomically(flags.svg, to_svg(fleet_plan_plot(*question, *plan))));
  return flags.json ? fleet_plan_json(*question, *plan, *prediction, changes)
                    : fleet_plan_text(*question, *plan, *prediction, changes);
}

void add_flags(CLI::App& command, FleetPlanFlags& flags) {
  add_config_flags(command, flags.config);
  command
      .add_option("--prices", flags.prices,
                  "List of machines with speeds, links and prices (docs/formats/fleet_prices.md)")
      ->required()
      ->type_name("FILE");
  CLI::Option* trace =
      command
          .add_option("--trace", flags.trace,
                      "Fleet trace: when such machines are to be had (docs/formats/fleet.md); "
                      "without it, what the listed machines would train if they stayed")
          ->type_name("FLEET");
  command
      .add_option("--status", flags.status,
                  "Take the peers from a running run instead: what \"swarmline status --json\" "
                  "printed")
      ->excludes(trace)
      ->type_name("FILE");
  command
      .add_option("--machine", flags.machine,
                  "Class of the list that the trace's machines are of; needed if there are several")
      ->needs(trace)
      ->type_name("NAME");
  command
      .add_option("--stages", flags.stages,
                  "Numbers of stages to try; default: divisors of the layers and powers of two")
      ->delimiter(',')
      ->check(CLI::Range(std::uint32_t{1}, static_cast<std::uint32_t>(kFleetPlanStagesMax)))
      ->needs(trace)
      ->type_name("N,...");
  command
      .add_option("--machines", flags.machines,
                  "Numbers of machines to rent at a time, of those in the trace; default: from one "
                  "pipeline to all of them")
      ->delimiter(',')
      ->check(CLI::Range(std::uint32_t{1}, kFleetPeersMax))
      ->needs(trace)
      ->type_name("N,...");
  command
      .add_option("--codecs", flags.codecs,
                  "Codecs of activations and their gradients to try; default: the run's own and h8")
      ->delimiter(',')
      ->needs(trace)
      ->type_name("CODEC,...");
  command
      .add_option("--min-tokens-per-second", flags.least_tokens_per_second,
                  "Throughput below which a setting does not count")
      ->check(CLI::NonNegativeNumber)
      ->needs(trace)
      ->type_name("N");
  command
      .add_option("--notice", flags.notice_seconds,
                  "Seconds between the word that a machine is taken and its end; 0: no word")
      ->check(CLI::Range(0.0, 3600.0))
      ->needs(trace)
      ->type_name("N");
  command
      .add_flag("--background-checkpoints", flags.background_checkpoints,
                "Let all ways train while they write a checkpoint; else they wait for it")
      ->needs(trace);
  command.add_option("--svg", flags.svg, "Write a plot of cost over machines to this file")
      ->needs(trace)
      ->type_name("FILE");
  command.add_flag("--json", flags.json, "Machine-readable output (docs/formats/fleet_plan.md)");
}

}  // namespace

void add_fleet_plan_command(CLI::App& fleet, int& exit_code) {
  auto flags = std::make_shared<FleetPlanFlags>();
  CLI::App* command = fleet.add_subcommand(
      "plan",
      "Tokens/s, bottleneck and price of a run before it is rented, and the cheapest "
      "setting on machines that come and go");
  add_flags(*command, *flags);
  command->footer(
      "What it counts, and how close it comes: docs/fleet.md.\n"
      "Examples:\n"
      "  swarmline fleet plan run.toml --prices prices.toml\n"
      "  swarmline fleet plan run.toml --prices prices.toml --status status.json\n"
      "  swarmline fleet plan configs/llama_like.toml --prices configs/fleets/p3.toml --trace "
      "configs/fleets/aws-p3.fleet --stages 4,8");
  command->callback([flags, &exit_code] {
    const auto text = flags->trace.empty() ? predict(*flags) : plan(*flags);
    if (text) std::fputs(printable_lines(*text).c_str(), stdout);
    exit_code = text ? kExitDone : report_error(text.error());
  });
}

}  // namespace swarmline
