#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/printable.h"
#include "cli/commands.h"
#include "console/exit_codes.h"
#include "console/screen.h"
#include "engine/store/files.h"
#include "node/run_folder.h"
#include "tools/history/run_plot.h"

namespace swarmline {
namespace {

constexpr std::size_t kTextRows = 21, kTextColumnsMax = 110;

struct PlotFlags {
  std::vector<std::string> runs;
  std::string what = "loss", axis = "step", svg, csv;
  std::uint32_t stage = 0;
};

std::string name_of(const RunFolder& folder) {
  return std::filesystem::path(folder.path()).filename().string();
}

Result<std::vector<NamedHistory>> read_runs(const PlotFlags& flags) {
  std::vector<NamedHistory> runs;
  std::vector<std::string> names = flags.runs;
  if (names.empty()) names.emplace_back();  // the newest
  for (const std::string& name : names) {
    auto folder = find_run_folder(name);
    if (!folder) return std::unexpected(std::move(folder).error());
    auto history = read_history(folder->log());
    if (!history) return std::unexpected(std::move(history).error());
    if (history->steps.empty())
      return fail(ErrorCode::kUserMistake,
                  fmt::format("{}: expected a run with steps, found none yet", folder->path()));
    runs.push_back({.name = name_of(*folder), .history = std::move(*history)});
  }
  return runs;
}

PlotAxis axis_of(const PlotFlags& flags) {
  if (flags.axis == "tokens") return PlotAxis::kTokens;
  return flags.axis == "minutes" ? PlotAxis::kMinutes : PlotAxis::kSteps;
}

Result<LinePlot> plot_of(const PlotFlags& flags, const std::vector<NamedHistory>& runs) {
  if (flags.what == "loss") return plot_loss(runs, axis_of(flags));
  if (flags.what == "throughput") return plot_throughput(runs, axis_of(flags));
  if (runs.size() > 1)
    return fail(ErrorCode::kUserMistake, "shares are drawn of one run: name one");
  LinePlot plot = plot_shares(runs.front(), flags.stage, axis_of(flags));
  if (plot.lines.empty())
    return fail(ErrorCode::kUserMistake,
                fmt::format("{} has no stage {}: give another one by --stage N (from 0 on)",
                            runs.front().name, flags.stage));
  return plot;
}

Result<void> write_file(const std::string& path, const std::string& text) {
  SWARMLINE_TRY(write_text_file_atomically(path, text));
  std::printf("%s\n", printable_lines(path).c_str());
  return {};
}

Result<void> run_plot(const PlotFlags& flags) {
  auto runs = read_runs(flags);
  if (!runs) return std::unexpected(std::move(runs).error());
  if (!flags.csv.empty() && runs->size() > 1)
    return fail(ErrorCode::kUserMistake, "--csv is written of one run: name one");
  auto plot = plot_of(flags, *runs);
  if (!plot) return std::unexpected(std::move(plot).error());
  if (!flags.csv.empty()) SWARMLINE_TRY(write_file(flags.csv, to_csv(runs->front().history)));
  if (!flags.svg.empty()) SWARMLINE_TRY(write_file(flags.svg, to_svg(*plot)));
  if (!flags.svg.empty() || !flags.csv.empty()) return {};
  const std::size_t columns = std::min(terminal_style().columns, kTextColumnsMax);
  for (const std::string& line : to_text(*plot, columns, kTextRows))
    std::printf("%s\n", printable_lines(line).c_str());
  return {};
}

}  // namespace

void add_plot_command(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<PlotFlags>();
  CLI::App* command = app.add_subcommand(
      "plot", "Draw loss, throughput or shares of one or several runs, or write them as CSV");
  command->add_option("runs", flags->runs, "Run folders; default: the newest under runs/")
      ->type_name("RUN_FOLDER");
  command
      ->add_option("--what", flags->what,
                   "Quantity to draw; shares: how much of a stage each of its peers computed")
      ->check(CLI::IsMember({"loss", "throughput", "shares"}))
      ->capture_default_str();
  command->add_option("--stage", flags->stage, "Stage whose shares are drawn, with --what shares")
      ->capture_default_str();
  command->add_option("--axis", flags->axis, "Horizontal axis")
      ->check(CLI::IsMember({"step", "tokens", "minutes"}))
      ->capture_default_str();
  command->add_option("--svg", flags->svg, "Write the plot to this file instead of the terminal")
      ->type_name("FILE");
  command->add_option("--csv", flags->csv, "Write one row per step to this file")
      ->type_name("FILE");
  command->footer("Example: swarmline plot runs/a runs/b --svg loss.svg");
  command->callback([flags, &exit_code] {
    const auto drawn = run_plot(*flags);
    exit_code = drawn ? kExitDone : report_error(drawn.error());
  });
}

}  // namespace swarmline
