#include <algorithm>
#include <cstdio>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "base/printable.h"
#include "cli/commands.h"
#include "console/exit_codes.h"
#include "console/text.h"
#include "engine/checkpoint/checkpoint_diff.h"
#include "engine/runtime/asio_runtime.h"
#include "node/admin_client.h"
#include "node/object_store/checkpoint_mirror.h"
#include "node/run_folder.h"
#include "node/run_retention.h"
#include "tools/checkpoints/checkpoint_list.h"
#include "tools/checkpoints/stored_checkpoints.h"

namespace swarmline {
namespace {

void print(const std::string& text) {
  std::fputs(printable_lines(text).c_str(), stdout);
}

constexpr const char* kRunOrStore = "RUN_FOLDER|s3://...|gs://...";

void add_python_flag(CLI::App& command, std::string& python) {
  command
      .add_option("--python", python,
                  "Python with pyarrow, for object storage; default: python3 of the search path")
      ->type_name("PROGRAM");
}

void add_diff_command(CLI::App& group, int& exit_code) {
  struct Flags {
    std::string a, b;
    bool json = false;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* diff = group.add_subcommand(
      "diff", "Show the largest differences between two models, tensor by tensor");
  const char* what = "A run folder, a checkpoints/step-N folder or a .safetensors file";
  diff->add_option("a", flags->a, what)->required()->type_name("A");
  diff->add_option("b", flags->b, what)->required()->type_name("B");
  diff->add_flag("--json", flags->json, "Machine-readable output (docs/formats/checkpoint.md)");
  diff->footer(
      "The two may have been cut into different numbers of stages. Exit code 0 whatever the\n"
      "differences, 1 when a tensor is in one only or has another shape.\n"
      "Example: swarmline checkpoint diff runs/quickstart runs/quickstart-reference");
  diff->callback([flags, &exit_code] {
    auto result = diff_checkpoints(flags->a, flags->b);
    if (!result) {
      exit_code = report_error(result.error());
      return;
    }
    std::fputs((flags->json ? to_json(*result) : to_text(*result)).c_str(), stdout);
    exit_code = result->same_tensors() ? kExitDone : kExitFailed;
  });
}

Result<std::vector<ListedCheckpoint>> listed_in(const std::string& run, const std::string& python) {
  if (is_store_url(run)) return list_stored(CheckpointStore({.url = run, .python = python}));
  auto folder = find_run_folder(run);
  if (!folder) return std::unexpected(std::move(folder).error());
  return list_run_checkpoints(folder->path());
}

Result<std::string> list(const std::string& run, bool json, const std::string& python) {
  const auto listed = listed_in(run, python);
  if (!listed) return std::unexpected(listed.error());
  return json ? to_json(*listed) : to_text(*listed, AsioRuntime().wall_seconds());
}

Result<std::string> ask_for_one(const std::string& run) {
  auto target = find_run(run);
  if (!target) return std::unexpected(std::move(target).error());
  auto door = admin_door(*target);
  if (!door) return std::unexpected(std::move(door).error());
  return ask_checkpoint(door->address, std::move(door->guard), door->secret);
}

void add_now_command(CLI::App& group, int& exit_code) {
  auto run = std::make_shared<std::string>();
  CLI::App* command =
      group.add_subcommand("now", "Ask a living run for a checkpoint at its next commit");
  command
      ->add_option("run", *run,
                   "A run folder, a coordinator's address on this machine, or a join string; "
                   "default: the newest under runs/")
      ->type_name("RUN_FOLDER|HOST:PORT|swarm1...");
  command->footer("Example: swarmline checkpoint now runs/quickstart");
  command->callback([run, &exit_code] {
    const auto answer = ask_for_one(*run);
    if (answer) print(*answer + "\n");
    exit_code = answer ? kExitDone : report_error(answer.error());
  });
}

void add_list_command(CLI::App& group, int& exit_code) {
  struct Flags {
    std::string run, python = "python3";
    bool json = false;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* command = group.add_subcommand(
      "list", "Show a run's checkpoints: step, size, age, losses, whole or damaged");
  command
      ->add_option("run", flags->run,
                   "A run folder, or a run in object storage; default: the newest under runs/")
      ->type_name(kRunOrStore);
  add_python_flag(*command, flags->python);
  command->add_flag("--json", flags->json, "Machine-readable output (docs/formats/checkpoint.md)");
  command->footer(
      "Whole by the sizes of its files; \"swarmline checkpoint verify\" reads every byte.\n"
      "Example: swarmline checkpoint list runs/quickstart");
  command->callback([flags, &exit_code] {
    const auto text = list(flags->run, flags->json, flags->python);
    if (text) print(*text);
    exit_code = text ? kExitDone : report_error(text.error());
  });
}

void add_verify_command(CLI::App& group, int& exit_code) {
  struct Flags {
    std::string path, python = "python3";
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* command =
      group.add_subcommand("verify", "Read every byte of checkpoints and compare their SHA-256");
  command
      ->add_option(
          "path", flags->path,
          "A run folder, or a run in object storage, all of its checkpoints; or one step-N "
          "folder")
      ->required()
      ->type_name("RUN_FOLDER|CHECKPOINT|s3://...|gs://...");
  add_python_flag(*command, flags->python);
  command->footer(
      "Exit code 1 when one is damaged.\nExample: swarmline checkpoint verify runs/quickstart");
  command->callback([flags, &exit_code] {
    const auto verified =
        is_store_url(flags->path)
            ? verify_stored(CheckpointStore({.url = flags->path, .python = flags->python}))
            : verify_checkpoints(flags->path);
    if (!verified) {
      exit_code = report_error(verified.error());
      return;
    }
    exit_code = kExitDone;
    for (const VerifiedCheckpoint& one : *verified) {
      print(fmt::format("{}: {}\n", one.path,
                        one.damage.empty() ? human_bytes(static_cast<double>(one.bytes)) + ", whole"
                                           : "damaged: " + one.damage));
      if (!one.damage.empty()) exit_code = kExitFailed;
    }
  });
}

struct PruneFlags {
  std::string run, python = "python3";
  bool all = false;
  std::uint32_t keep = 0;
  std::uint64_t keep_every = 0;
  std::uint32_t keep_best = 0;
  bool dry_run = false;
};

Result<void> prune_stored(const PruneFlags& flags) {
  const CheckpointStore store({.url = flags.run, .python = flags.python});
  const Retention retention{.newest = std::max(flags.keep, 1U),
                            .every_steps = flags.keep_every,
                            .best = 0,
                            .held_out = {}};
  const auto removed = flags.all ? remove_stored(store, flags.dry_run)
                                 : prune_store(store, retention, flags.dry_run);
  if (!removed) return std::unexpected(removed.error());
  for (const std::string& name : *removed)
    print(fmt::format("{} {}\n", flags.dry_run ? "would remove" : "removed", name));
  if (removed->empty()) print("nothing to remove\n");
  return {};
}

Result<void> prune(const PruneFlags& flags) {
  if (flags.all != (flags.keep == 0))
    return fail(ErrorCode::kUserMistake, "expected either --keep N or --all; give one of them");
  if (is_store_url(flags.run)) {
    if (flags.keep_best > 0)
      return fail(ErrorCode::kUserMistake,
                  "--keep-best needs the losses in a run folder's log; leave it out here");
    return prune_stored(flags);
  }
  if (flags.all)
    return fail(ErrorCode::kUserMistake,
                "--all is for a run in object storage; remove the run folder instead");
  const auto folder = find_run_folder(flags.run);
  if (!folder) return std::unexpected(folder.error());
  Retention retention{.newest = flags.keep,
                      .every_steps = flags.keep_every,
                      .best = flags.keep_best,
                      .held_out = {}};
  if (flags.keep_best > 0) retention.held_out = held_out_losses(folder->log());
  const auto pruned = prune_checkpoints(folder->checkpoints(), retention,
                                        {.only_look = flags.dry_run, .verify = Verify::kContents});
  if (!pruned) return std::unexpected(pruned.error());
  for (const std::string& path : pruned->set_aside)
    print(fmt::format("{} {}, it is damaged\n", flags.dry_run ? "would set aside" : "set aside",
                      path));
  for (const std::string& path : pruned->removed)
    print(fmt::format("{} {}\n", flags.dry_run ? "would remove" : "removed", path));
  if (pruned->removed.empty() && pruned->set_aside.empty()) print("nothing to remove\n");
  return {};
}

void add_prune_command(CLI::App& group, int& exit_code) {
  auto flags = std::make_shared<PruneFlags>();
  CLI::App* command = group.add_subcommand("prune", "Remove checkpoints that are not to be kept");
  command->add_option("run", flags->run, "A run folder, or a run in object storage")
      ->required()
      ->type_name(kRunOrStore);
  command->add_option("--keep", flags->keep, "Number of the newest whole ones that stay")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N");
  command
      ->add_option("--keep-every", flags->keep_every,
                   "Those of each multiple of this many steps stay, too")
      ->type_name("STEPS");
  command
      ->add_option("--keep-best", flags->keep_best,
                   "Number of those with the lowest held-out loss that stay, too")
      ->type_name("N");
  command->add_flag("--all", flags->all, "None stays, of a run in object storage");
  command->add_flag("--dry-run", flags->dry_run, "Only print what would be removed");
  add_python_flag(*command, flags->python);
  command->footer(
      "Every byte of those that stay is read first: one that is damaged is set aside as\n"
      "step-N.damaged, and the one before it stays in its place.\n"
      "Example: swarmline checkpoint prune runs/quickstart --keep 2 --keep-every 1000");
  command->callback([flags, &exit_code] {
    const auto done = prune(*flags);
    exit_code = done ? kExitDone : report_error(done.error());
  });
}

Result<CheckpointStore> store_at(const std::string& url, const std::string& python) {
  if (is_store_url(url)) return CheckpointStore({.url = url, .python = python});
  return fail(ErrorCode::kUserMistake,
              fmt::format("found \"{}\", expected s3://BUCKET/PATH or gs://BUCKET/PATH; write for "
                          "example s3://my-bucket/runs/quickstart",
                          url));
}

void add_push_command(CLI::App& group, int& exit_code) {
  struct Flags {
    std::string run, store, python = "python3";
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* command = group.add_subcommand("push", "Copy a run's checkpoints into object storage");
  command->add_option("run", flags->run, "A run folder")->required()->type_name("RUN_FOLDER");
  command->add_option("store", flags->store, "Where the run is to be in object storage")
      ->required()
      ->type_name("s3://...|gs://...");
  add_python_flag(*command, flags->python);
  command->footer(
      "Those that are there already are left alone. A run with checkpoint.store does it by "
      "itself.\n"
      "Example: swarmline checkpoint push runs/quickstart s3://my-bucket/runs/quickstart");
  command->callback([flags, &exit_code] {
    const auto store = store_at(flags->store, flags->python);
    if (!store) {
      exit_code = report_error(store.error());
      return;
    }
    const auto pushed = push_checkpoints(flags->run, *store);
    exit_code = pushed ? kExitDone : report_error(pushed.error());
    if (!pushed) return;
    for (const std::string& path : *pushed) print(path + "\n");
    if (pushed->empty()) print("all of them are there\n");
  });
}

void add_pull_command(CLI::App& group, int& exit_code) {
  struct Flags {
    std::string store, run, python = "python3";
    std::optional<std::uint64_t> step;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* command =
      group.add_subcommand("pull", "Fetch a checkpoint from object storage into a run folder");
  command->add_option("store", flags->store, "A run in object storage")
      ->required()
      ->type_name("s3://...|gs://...");
  command->add_option("run", flags->run, "A run folder")->required()->type_name("RUN_FOLDER");
  command->add_option("--step", flags->step, "The one of this step; default: the newest whole one")
      ->type_name("STEP");
  add_python_flag(*command, flags->python);
  command->footer(
      "Every byte is compared with its SHA-256 before the checkpoint is in its place.\n"
      "Example: swarmline checkpoint pull s3://my-bucket/runs/quickstart runs/quickstart");
  command->callback([flags, &exit_code] {
    const auto store = store_at(flags->store, flags->python);
    if (!store) {
      exit_code = report_error(store.error());
      return;
    }
    const auto path = pull_checkpoint(*store, flags->run, flags->step);
    exit_code = path ? kExitDone : report_error(path.error());
    if (path) print(*path + "\n");
  });
}

}  // namespace

void add_checkpoint_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "checkpoint", "List, check, prune, copy and compare checkpoints, or ask a run for one");
  command->require_subcommand(1);
  add_list_command(*command, exit_code);
  add_now_command(*command, exit_code);
  add_verify_command(*command, exit_code);
  add_prune_command(*command, exit_code);
  add_push_command(*command, exit_code);
  add_pull_command(*command, exit_code);
  add_diff_command(*command, exit_code);
}

}  // namespace swarmline
