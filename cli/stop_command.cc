#include <cstdio>

#include <fmt/format.h>

#include "base/printable.h"
#include "cli/commands.h"
#include "console/exit_codes.h"
#include "node/admin_client.h"
#include "node/dead_run.h"
#include "node/run_folder.h"

namespace swarmline {
namespace {

Result<std::string> run_stop(const std::string& text, bool now) {
  auto target = find_run(text);
  if (!target) return std::unexpected(std::move(target).error());
  auto door = admin_door(*target);
  if (!door) return std::unexpected(std::move(door).error());
  auto answer = ask_stop(door->address, now, std::move(door->guard), door->secret);
  if (!answer && answer.error().code == ErrorCode::kPeerGone && target->folder) {
    if (const auto died = status_of_dead_run(*target->folder))
      return fail(ErrorCode::kPeerGone, fmt::format("{}: there is nothing to stop: it {}",
                                                    target->folder->path(), died->sentence));
  }
  return answer;
}

}  // namespace

void add_stop_command(CLI::App& app, int& exit_code) {
  struct Flags {
    std::string target;
    bool now = false;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* command =
      app.add_subcommand("stop", "End a run after its open step, with a checkpoint");
  command
      ->add_option(
          "run", flags->target,
          "A run folder, a coordinator's address on this machine, or a join string; default: "
          "the newest under runs/")
      ->type_name("RUN_FOLDER|HOST:PORT|swarm1...");
  command->add_flag("--now", flags->now,
                    "End at once, without finishing the step and without a checkpoint");
  command->footer("Example: swarmline stop runs/quickstart");
  command->callback([flags, &exit_code] {
    auto answer = run_stop(flags->target, flags->now);
    if (answer) std::printf("%s\n", printable_lines(*answer).c_str());
    exit_code = answer ? kExitDone : report_error(answer.error());
  });
}

}  // namespace swarmline
