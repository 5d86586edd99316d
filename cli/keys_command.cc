#include <algorithm>
#include <cstdio>
#include <utility>

#include <fmt/format.h>

#include "base/limits.h"
#include "cli/commands.h"
#include "cli/time_flag.h"
#include "console/exit_codes.h"
#include "engine/config/load.h"
#include "engine/runtime/asio_runtime.h"
#include "engine/store/files.h"
#include "node/admin_client.h"
#include "node/run_access.h"

namespace swarmline {
namespace {

// A coordinator that lives has looked at the file by then.
constexpr Duration kTakenWithin = std::chrono::seconds(15);
constexpr Duration kAskAgain = std::chrono::milliseconds(200);

struct KeysFlags {
  std::string run;
  std::string overlap = "24h";
};

void print_key(const RunKey& key, const RunFolder& folder, double now) {
  std::printf("run     %s  %s\n", to_string(key.identity.hash()).c_str(), folder.run_key().c_str());
  for (const Handover& before : key.handovers)
    if (before.holds(now))
      std::printf("before  %s  followed by peers for %.1f h more\n",
                  to_string(*hash_of_public_key(before.from)).c_str(),
                  std::max(0.0, (before.until - now) / 3600));
}

Result<void> show(const KeysFlags& flags) {
  const auto folder = find_run_folder(flags.run);
  if (!folder) return std::unexpected(folder.error());
  const auto key = load_run_key(folder->run_key());
  if (!key && key.error().code == ErrorCode::kNotFound) {
    std::printf("%s has no key: its links have stayed within this machine\n",
                folder->path().c_str());
    return {};
  }
  if (!key) return std::unexpected(key.error());
  const auto book = read_invites(*folder);
  if (!book) return std::unexpected(book.error());
  print_key(*key, *folder, AsioRuntime().wall_seconds());
  for (const Invite& invite : book->invites())
    for (const KeyHash& admitted : invite.admitted)
      std::printf("%-8s%s  by invite %s\n", std::string(to_string(invite.scope)).c_str(),
                  to_string(admitted).c_str(), to_hex(as_bytes(invite.id)).c_str());
  return {};
}

// The folder of a run that is to begin need not be there.
Result<void> make(const KeysFlags& flags) {
  if (flags.run.empty())
    return fail(ErrorCode::kUserMistake,
                "name the run folder whose key is to be made, e.g. "
                "runs/NAME");
  const RunFolder folder(flags.run);
  SWARMLINE_TRY(make_keys_folder(folder));
  const auto key = load_or_make_run_key(folder.run_key());
  if (!key) return std::unexpected(key.error());
  print_key(*key, folder, AsioRuntime().wall_seconds());
  return {};
}

enum class Shown : std::uint8_t { kYes, kNobodyThere, kNotYet };

// Whether its coordinator shows the key that the file has now.
Shown is_shown(const RunFolder& folder, const Address& address) {
  AsioRuntime runtime;
  const Instant until = runtime.now() + kTakenWithin;
  while (runtime.now() < until) {
    auto guard = folder.owner_guard();
    const auto status = guard ? ask_status(address, std::move(*guard))
                              : Result<std::string>(std::unexpected(guard.error()));
    if (status) return Shown::kYes;
    if (status.error().code == ErrorCode::kPeerGone) return Shown::kNobodyThere;
    runtime.run_until([] { return false; }, kAskAgain);
  }
  return Shown::kNotYet;
}

void say_who_shows_it(const RunFolder& folder) {
  const auto address = folder.read_address();
  switch (address ? is_shown(folder, *address) : Shown::kNobodyThere) {
    case Shown::kYes:
      std::printf("the coordinator at %s shows it; %s holds the string that joins now\n",
                  to_string(*address).c_str(), folder.join_string().c_str());
      break;
    case Shown::kNobodyThere:
      std::printf("the run's coordinator shows it from its next start on\n");
      break;
    case Shown::kNotYet:
      std::printf("the coordinator at %s has not shown it within %.0f s: see its log\n",
                  to_string(*address).c_str(), to_seconds(kTakenWithin));
      break;
  }
}

Result<void> rotate(const KeysFlags& flags) {
  const auto overlap = seconds_of_flag("--overlap", flags.overlap, kKeyOverlapMaxSeconds);
  if (!overlap) return std::unexpected(overlap.error());
  const auto folder = find_run_folder(flags.run);
  if (!folder) return std::unexpected(folder.error());
  if (!file_exists(folder->run_key()))
    return fail(ErrorCode::kUserMistake,
                fmt::format("{} has no key that could be changed; \"swarmline keys make {}\" makes "
                            "one",
                            folder->path(), folder->path()));
  auto text = read_text_file(folder->config(), Limits::config_file_bytes_max);
  if (!text) return std::unexpected(std::move(text).error());
  const auto config = run_config_from_text(*text, folder->config());
  if (!config) return std::unexpected(config.error());
  const double now = AsioRuntime().wall_seconds();
  const auto key = rotate_run_key(folder->run_key(), config->run.name, now, *overlap);
  if (!key) return std::unexpected(key.error());
  print_key(*key, *folder, now);
  say_who_shows_it(*folder);
  if (!config->run.etcd.empty())
    std::printf("standbys on other machines need a copy of %s now\n", folder->keys().c_str());
  return {};
}

}  // namespace

void add_keys_command(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<KeysFlags>();
  CLI::App* command =
      app.add_subcommand("keys", "Show, make or change a run's key, and show who has joined");
  const auto does = [&](CLI::App* of, Result<void> (*act)(const KeysFlags&)) {
    of->callback([flags, act, of, &exit_code] {
      if (!of->get_subcommands().empty()) return;  // that one has done it
      const auto done = act(*flags);
      exit_code = done ? kExitDone : report_error(done.error());
    });
  };
  const auto run_option = [&](CLI::App* of, const char* what) {
    of->add_option("run", flags->run, what)->type_name("RUN_FOLDER");
  };
  constexpr const char* kWhich = "The run folder; default: the newest under runs/";
  command->require_subcommand(0, 1);
  run_option(command, kWhich);
  does(command, show);
  CLI::App* make_one = command->add_subcommand(
      "make", "Create the key of a run before its first start, for example to copy it to standbys");
  run_option(make_one, "The run folder, runs/NAME");
  does(make_one, make);
  CLI::App* rotate_one = command->add_subcommand(
      "rotate", "Change the key of a living run: the old one vouches for the new one");
  run_option(rotate_one, kWhich);
  rotate_one
      ->add_option("--overlap", flags->overlap,
                   "How long peers that were away may follow, and strings printed before join; at "
                   "most 7d. Short where the key has leaked")
      ->capture_default_str()
      ->type_name("TIME");
  does(rotate_one, rotate);
  command->footer(
      "A hash is SHA-256 of the public key: \"openssl pkey -in runs/NAME/keys/run.key -pubout\n"
      "-outform DER | sha256sum\" prints the same.\n"
      "Example: swarmline keys rotate runs/quickstart");
}

}  // namespace swarmline
