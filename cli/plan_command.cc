#include <array>
#include <cstdio>
#include <memory>

#include <fmt/format.h>

#include "cli/commands.h"
#include "console/exit_codes.h"
#include "engine/store/files.h"
#include "node/read_status.h"
#include "node/run_folder.h"
#include "tools/predict/plan_of_status.h"
#include "tools/predict/plan_report.h"

namespace swarmline {
namespace {

constexpr std::uint32_t kReplayStagesMax = 1024;
constexpr std::uint64_t kReplaySeedsMax = 10'000;

struct PlanFlags {
  std::string target;  // a snapshot, a status or a run
  std::string status;
  std::string replay;
  ReplayTableOptions table;
  bool json = false;
};

Result<std::string> read_standard_input() {
  std::string text;
  std::array<char, 1 << 16> part{};
  while (const std::size_t got = std::fread(part.data(), 1, part.size(), stdin)) {
    text.append(part.data(), got);
    if (text.size() > kPlanFileBytesMax)
      return fail(
          ErrorCode::kUserMistake,
          fmt::format("the standard input: expected at most {} MiB", kPlanFileBytesMax >> 20));
  }
  if (std::ferror(stdin) != 0) return fail(ErrorCode::kIo, "cannot read the standard input");
  return text;
}

// "HOST:PORT", "swarm1..." or a folder; whatever else is the name of a file.
bool names_a_run(const std::string& target) {
  if (file_exists(target)) return is_folder(target);
  return target.starts_with("swarm1") || target.contains(':');
}

Result<std::string> read_target(const PlanFlags& flags) {
  if (flags.status == "-") return read_standard_input();
  const std::string& target = flags.status.empty() ? flags.target : flags.status;
  if (!names_a_run(target)) return read_text_file(target, kPlanFileBytesMax);
  const auto run = find_run(target);
  if (!run) return std::unexpected(run.error());
  return read_status(*run);
}

Result<std::string> plan_target(const PlanFlags& flags) {
  const auto text = read_target(flags);
  if (!text) return std::unexpected(text.error());
  const auto question = parse_status_or_snapshot(*text);
  if (!question) {
    const std::string& named = flags.status.empty() ? flags.target : flags.status;
    return fail(
        question.error().code,
        fmt::format("{}: {}", named == "-" ? "the standard input" : named, question.error().what));
  }
  const SwarmPlan plan = plan_swarm(question->snapshot, question->options);
  return flags.json ? plan_json(*question, plan) : plan_text(*question, plan);
}

Result<std::string> replay(const PlanFlags& flags) {
  const auto fleet = load_fleet(flags.replay);
  if (!fleet) {
    const bool content = fleet.error().code == ErrorCode::kCorrupt;
    return fail(content ? ErrorCode::kUserMistake : fleet.error().code, fleet.error().what);
  }
  const ReplayTable table = replay_table(*fleet, flags.table);
  return flags.json ? replay_json(table) : replay_text(table);
}

Result<std::string> run_plan(const PlanFlags& flags) {
  const int given = !flags.target.empty() + !flags.status.empty() + !flags.replay.empty();
  if (given != 1) {
    return fail(ErrorCode::kUserMistake,
                "plan: expected a run, a snapshot, --status FILE or --replay FLEET, one of them; "
                "\"swarmline plan --help\" shows them");
  }
  return flags.replay.empty() ? plan_target(flags) : replay(flags);
}

}  // namespace

void add_plan_command(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<PlanFlags>();
  CLI::App* command = app.add_subcommand("plan", "Show what the balancer would do, and why");
  command
      ->add_option("run", flags->target,
                   "A running run (its folder, its coordinator's address, or a join string), or a "
                   "file with its status or with a snapshot of a swarm (docs/formats/plan.md)")
      ->type_name("RUN|FILE");
  command
      ->add_option("--status", flags->status,
                   "What \"swarmline status --json\" printed; -: read from standard input")
      ->type_name("FILE|-");
  CLI::Option* replay =
      command
          ->add_option("--replay", flags->replay,
                       "Instead, compare balancing policies while a fleet trace is replayed")
          ->type_name("FLEET");
  command->add_option("--stages", flags->table.stages, "Of the replayed runs; default 4,8,16")
      ->delimiter(',')
      ->check(CLI::Range(std::uint32_t{1}, kReplayStagesMax))
      ->needs(replay)
      ->type_name("N,...");
  command->add_option("--seeds", flags->table.seeds, "Runs per table row")
      ->check(CLI::Range(std::uint64_t{1}, kReplaySeedsMax))
      ->needs(replay)
      ->capture_default_str();
  command->add_flag("--free", flags->table.free, "Joins, moves and shadows cost nothing")
      ->needs(replay);
  command->add_flag("--json", flags->json, "Machine-readable output (docs/formats/plan.md)");
  command->footer(
      "How it decides: docs/balancing.md.\n"
      "Examples:\n"
      "  swarmline plan runs/quickstart\n"
      "  swarmline status 127.0.0.1:7400 --json | swarmline plan --status -\n"
      "  swarmline plan --replay configs/fleets/aws-p3.fleet --stages 4");
  command->callback([flags, &exit_code] {
    const auto text = run_plan(*flags);
    if (text) std::fputs(text->c_str(), stdout);
    exit_code = text ? kExitDone : report_error(text.error());
  });
}

}  // namespace swarmline
