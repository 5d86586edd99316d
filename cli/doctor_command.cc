#include <cstdio>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "base/bytes.h"
#include "base/limits.h"
#include "base/log.h"
#include "cli/build_info.h"
#include "cli/commands.h"
#include "cli/config_flags.h"
#include "cli/join_flags.h"
#include "cli/status_source.h"
#include "console/exit_codes.h"
#include "engine/config/load.h"
#include "engine/model/stage_model.h"
#include "tools/doctor/doctor.h"

namespace swarmline {
namespace {

struct DoctorFlags {
  std::string config;
  std::vector<std::string> overrides;
  std::string name;
  std::string join;
  std::string status;
  PeerFlags machine;
  bool json = false;
};

// A stage of one small layer, forward and backward.
Result<void> compute_small_stage(const PeerConfig& machine) {
  RunConfig config;
  config.model.layers = 1;
  config.model.d_model = 32;
  config.model.heads = 2;
  config.batch = {.batch = 1, .microbatch = 1, .sequence = 8};
  const auto spec = resolve_model(config, 17);
  if (!spec) return std::unexpected(spec.error());
  auto model =
      make_stage_model(*spec, {.stage = StageId(0), .stages = 1, .last_layer = 1},
                       {.device = machine.device, .threads = static_cast<int>(machine.threads)});
  if (!model) return std::unexpected(std::move(model).error());
  const Buffer tokens = Buffer::zeroed(spec->sequence * sizeof(std::int32_t));
  const AttemptId id{};
  const auto forward = (*model)->forward({.id = id,
                                          .rows = 1,
                                          .tokens = tokens.bytes(),
                                          .hidden = {},
                                          .hidden_wire = {},
                                          .targets = tokens.bytes(),
                                          .as_wire = {}});
  if (!forward) return std::unexpected(forward.error());
  Buffer sums = Buffer::zeroed((*model)->layout().bytes());
  const auto backward = (*model)->backward({.id = id,
                                            .output_gradient = {},
                                            .output_gradient_wire = {},
                                            .accumulator = sums.bytes(),
                                            .as_wire = {}});
  if (!backward) return std::unexpected(backward.error());
  if (!forward->finite || !backward->finite)
    return fail(ErrorCode::kDevice, "a small stage came out as NaN or Inf");
  return {};
}

Result<std::optional<RunStatus>> status_of(const std::string& named) {
  if (named.empty()) return std::nullopt;
  const auto text = read_status_source(named, Limits::status_bytes_max);
  if (!text) return std::unexpected(text.error());
  auto status = parse_status(*text);
  if (!status)
    return fail(ErrorCode::kUserMistake,
                fmt::format("--status {}: {}; expected what \"swarmline status --json\" prints",
                            named, status.error().what));
  return std::move(*status);
}

Result<DoctorQuestion> question_of(const DoctorFlags& flags) {
  DoctorQuestion question;
  auto machine = load_peer(flags.machine);
  if (!machine) return std::unexpected(std::move(machine).error());
  question.machine = std::move(*machine);
  if (!flags.config.empty()) {
    auto config =
        load_config({.path = flags.config, .overrides = flags.overrides, .name = flags.name});
    if (!config) return std::unexpected(std::move(config).error());
    question.config = std::move(*config);
  } else if (!flags.overrides.empty() || !flags.name.empty()) {
    return fail(ErrorCode::kUserMistake,
                "doctor: --set and --name change a config, and none was given: name one first");
  }
  if (!flags.join.empty()) {
    auto join = join_target(flags.join, question.machine);
    if (!join) return std::unexpected(std::move(join).error());
    question.join = std::move(*join);
  }
  auto status = status_of(flags.status);
  if (!status) return std::unexpected(std::move(status).error());
  question.status = std::move(*status);
  question.libtorch = built_from::kLibtorch;
  question.compute = compute_small_stage;
  return question;
}

Result<int> run_doctor(const DoctorFlags& flags) {
  init_log({.level = LogLevel::kWarn, .file = {}, .prefix = "doctor"});
  const auto question = question_of(flags);
  if (!question) return std::unexpected(question.error());
  const auto findings = examine(*question);
  if (!findings) return std::unexpected(findings.error());
  const std::string text = flags.json ? findings_json(*findings) : findings_text(*findings);
  std::fputs(text.c_str(), stdout);
  return any_failed(*findings) ? kExitFailed : kExitDone;
}

}  // namespace

void add_doctor_command(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<DoctorFlags>();
  CLI::App* command = app.add_subcommand(
      "doctor", "Check this machine, its link to a run, or a run's health, and say what to do");
  command->add_option("run", flags->config, "A run that this machine is to coordinate or launch")
      ->type_name("CONFIG");
  command->add_option("--set", flags->overrides, "Any key of the config, as for launch")
      ->type_name("SECTION.KEY=VALUE");
  command->add_option("--name", flags->name, "Name of the run, as for launch")->type_name("NAME");
  command
      ->add_option("--join", flags->join,
                   "A run that this machine is to join: what its coordinator prints, a file that "
                   "holds it, - for the standard input, or HOST:PORT")
      ->type_name("swarm1...");
  command
      ->add_option("--status", flags->status,
                   "A run whose health to check: its folder, its coordinator's address, a file "
                   "with what \"swarmline status --json\" printed, or - for the standard input")
      ->type_name("RUN|FILE|-");
  command->add_flag("--json", flags->json, "Machine-readable output (docs/formats/doctor.md)");
  add_peer_flags(*command, flags->machine);
  command->footer(
      "Each line is one check: ok, warn, fail or skipped, what was found, and what to do. Exit\n"
      "code 0: nothing failed; 1: something did. What each one checks: docs/doctor.md.\n"
      "Examples:\n"
      "  swarmline doctor run.toml\n"
      "  swarmline doctor --join 'swarm1...@HOST:PORT'\n"
      "  swarmline doctor --status runs/quickstart");
  command->callback([flags, &exit_code] {
    const auto code = run_doctor(*flags);
    exit_code = code ? *code : report_error(code.error());
  });
}

}  // namespace swarmline
