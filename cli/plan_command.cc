#include <cstdio>
#include <memory>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/status_source.h"
#include "console/exit_codes.h"
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
  std::string moments = kPlainMoments;
  bool json = false;
};

const std::string& named_by(const PlanFlags& flags) {
  return flags.status.empty() ? flags.target : flags.status;
}

Result<std::string> plan_target(const PlanFlags& flags) {
  const std::string& named = named_by(flags);
  const auto text = read_status_source(named, kPlanFileBytesMax);
  if (!text) return std::unexpected(text.error());
  const auto question = parse_status_or_snapshot(*text);
  if (!question)
    return fail(
        question.error().code,
        fmt::format("{}: {}", named == "-" ? "the standard input" : named, question.error().what));
  const SwarmPlan plan = plan_swarm(question->snapshot, question->options);
  return flags.json ? plan_json(*question, plan) : plan_text(*question, plan);
}

Result<std::string> replay(const PlanFlags& flags) {
  const auto fleet = load_fleet(flags.replay);
  if (!fleet) {
    const bool content = fleet.error().code == ErrorCode::kCorrupt;
    return fail(content ? ErrorCode::kUserMistake : fleet.error().code, fleet.error().what);
  }
  ReplayTableOptions options = flags.table;
  options.packed_moments = flags.moments == kPackedMoments;
  const ReplayTable table = replay_table(*fleet, options);
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
  command
      ->add_option("--stages", flags->table.stages,
                   "Numbers of stages of the replayed runs; default 4,8,16")
      ->delimiter(',')
      ->check(CLI::Range(std::uint32_t{1}, kReplayStagesMax))
      ->needs(replay)
      ->type_name("N,...");
  command->add_option("--seeds", flags->table.seeds, "Number of runs per table row")
      ->check(CLI::Range(std::uint64_t{1}, kReplaySeedsMax))
      ->needs(replay)
      ->capture_default_str();
  command
      ->add_option("--moments", flags->moments,
                   "What the optimizer keeps, as optimizer.state says it")
      ->check(CLI::IsMember({kPlainMoments, kPackedMoments}))
      ->needs(replay)
      ->capture_default_str();
  command->add_flag("--free", flags->table.free, "Count joins, moves and shadows as free")
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
