#include <cstdio>
#include <memory>

#include <fmt/format.h>

#include "cli/commands.h"
#include "console/exit_codes.h"
#include "engine/store/files.h"
#include "sim/fleet/fleet.h"

namespace swarmline {
namespace {

constexpr std::uint64_t kTraceBytesMax = 256ULL << 20;

struct ConvertFlags {
  std::string trace, out;
  std::string name, source, licence;
};

Result<std::string> convert(const ConvertFlags& flags) {
  const auto text = read_text_file(flags.trace, kTraceBytesMax);
  if (!text) return std::unexpected(text.error());
  auto fleet = fleet_from_trace(*text);
  if (!fleet) {
    return fail(ErrorCode::kUserMistake, fmt::format("{}: {}", flags.trace, fleet.error().what));
  }
  fleet->name = flags.name;
  fleet->source = flags.source;
  fleet->licence = flags.licence;
  if (auto written = write_text_file_atomically(flags.out, fleet_text(*fleet)); !written) {
    return std::unexpected(written.error());
  }
  return fmt::format("{}: {} events in {:.1f} h, up to {} machines\n", flags.out,
                     fleet->events.size(), fleet->seconds / 3600, fleet->peak());
}

}  // namespace

void add_fleet_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "fleet", "Plan what to rent, files that start a fleet, and traces of past ones");
  command->require_subcommand(1);
  add_fleet_plan_command(*command, exit_code);
  add_fleet_init_command(*command, exit_code);
  auto flags = std::make_shared<ConvertFlags>();
  CLI::App* made = command->add_subcommand(
      "convert",
      "Convert a trace to a fleet file (docs/formats/fleet.md): lines of MILLISECONDS,add|remove,"
      "NODE or of DATE, TIME, COUNT");
  made->add_option("trace", flags->trace, "Trace to convert")->required()->type_name("TRACE");
  made->add_option("--out", flags->out, "Output file")->required()->type_name("FLEET");
  made->add_option("--name", flags->name, "Name of the fleet")->required();
  made->add_option("--source", flags->source, "Where the trace is from")->required();
  made->add_option("--licence", flags->licence, "Licence that the trace may be used under")
      ->required();
  made->footer(
      "Example: swarmline fleet convert aws-p3.csv --out aws-p3.fleet --name aws-p3 --source "
      "\"Bamboo "
      "project\" --licence MIT");
  made->callback([flags, &exit_code] {
    const auto text = convert(*flags);
    if (text) std::fputs(text->c_str(), stdout);
    exit_code = text ? kExitDone : report_error(text.error());
  });
}

}  // namespace swarmline
