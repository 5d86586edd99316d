#include <algorithm>
#include <cstdio>

#include <fmt/format.h>

#include "base/limits.h"
#include "cli/commands.h"
#include "cli/time_flag.h"
#include "console/exit_codes.h"
#include "engine/config/load.h"
#include "engine/runtime/asio_runtime.h"
#include "engine/store/files.h"
#include "engine/store/secret_file.h"
#include "node/page/page_guard.h"
#include "node/page_access.h"
#include "node/run_access.h"

namespace swarmline {
namespace {

struct InviteFlags {
  std::string run;
  std::string id;
  std::string life = "24h";
  std::string scope = "peer";
  std::uint64_t uses = 0;
  bool json = false;
};

constexpr double kLifeSecondsMax = 10.0 * 365 * 24 * 3600;

Result<RunFolder> keyed_folder(const std::string& text) {
  auto folder = find_run_folder(text);
  if (!folder || file_exists(folder->run_key())) return folder;
  return fail(ErrorCode::kUserMistake,
              fmt::format("{} has no key: its coordinator has not listened beyond this machine, "
                          "where anybody joins by its address",
                          folder->path()));
}

Result<RunConfig> config_of(const RunFolder& folder) {
  auto text = read_text_file(folder.config(), Limits::config_file_bytes_max);
  if (!text) return std::unexpected(std::move(text).error());
  return run_config_from_text(*text, folder.config());
}

// Where a browser looks at the run by this invite.
void print_page(const RunFolder& folder, const Invite& invite) {
  auto url = read_page_url(folder);
  if (!url || !url->starts_with("https:")) return;
  url->resize(std::min(url->find('?'), url->size()));
  std::printf("%s\n", with_token(*url, token_of(invite)).c_str());
}

Result<void> make(const InviteFlags& flags) {
  const auto life = seconds_of_flag("--ttl", flags.life, kLifeSecondsMax);
  if (!life) return std::unexpected(life.error());
  const auto folder = keyed_folder(flags.run);
  if (!folder) return std::unexpected(folder.error());
  const auto config = config_of(*folder);
  if (!config) return std::unexpected(config.error());
  auto address = folder->read_address();
  if (!address) return std::unexpected(std::move(address).error());
  const Invite invite = make_invite(*parse_invite_scope(flags.scope), AsioRuntime().wall_seconds(),
                                    *life, flags.uses);
  SWARMLINE_TRY(add_invite(*folder, invite));
  const auto join =
      join_string_of(*folder, config->run.name, invite, reached_at(*config, *address));
  if (!join) return std::unexpected(join.error());
  const char* const command = invite.scope == InviteScope::kPeer ? "peer --join" : "status";
  std::printf("swarmline %s '%s'\n", command, join->c_str());
  if (invite.scope != InviteScope::kPeer) print_page(*folder, invite);
  return {};
}

std::string state_of(const Invite& invite, double now) {
  if (invite.revoked) return "revoked";
  if (now > invite.expires) return "expired";
  if (!invite.is_open(now)) return "used up";
  return fmt::format("good for {:.1f} h", (invite.expires - now) / 3600);
}

Result<void> list(const InviteFlags& flags) {
  const auto folder = keyed_folder(flags.run);
  if (!folder) return std::unexpected(folder.error());
  const auto book = read_invites(*folder);
  if (!book) return std::unexpected(book.error());
  const double now = AsioRuntime().wall_seconds();
  for (const Invite& invite : book->invites()) {
    const std::string id = to_hex(as_bytes(invite.id));
    if (flags.json) {
      std::printf(
          "{\"id\":\"%s\",\"scope\":\"%s\",\"made\":%.3f,\"expires\":%.3f,\"uses\":%zu,"
          "\"uses_max\":%llu,\"revoked\":%s,\"open\":%s}\n",
          id.c_str(), std::string(to_string(invite.scope)).c_str(), invite.made, invite.expires,
          invite.admitted.size(), static_cast<unsigned long long>(invite.uses_max),
          invite.revoked ? "true" : "false", invite.is_open(now) ? "true" : "false");
      continue;
    }
    const std::string uses =
        invite.uses_max == 0
            ? fmt::format("{} came", invite.admitted.size())
            : fmt::format("{} of {} came", invite.admitted.size(), invite.uses_max);
    std::printf("%s  %-8s  %-16s  %s\n", id.c_str(), std::string(to_string(invite.scope)).c_str(),
                state_of(invite, now).c_str(), uses.c_str());
  }
  return {};
}

Result<void> revoke(const InviteFlags& flags) {
  const auto folder = keyed_folder(flags.run);
  if (!folder) return std::unexpected(folder.error());
  const auto id = from_hex(flags.id, kInviteIdBytes);
  if (!id)
    return fail(ErrorCode::kUserMistake,
                fmt::format("{}: expected an invite's id of {} hex digits, as \"swarmline invite "
                            "list\" shows it",
                            flags.id, 2 * kInviteIdBytes));
  const double now = AsioRuntime().wall_seconds();
  SWARMLINE_TRY(append_secret_line(folder->invites(), kInviteFileBytesMax,
                                   [&](std::string_view lines) -> Result<std::string> {
                                     const auto book = InviteBook::parse(lines);
                                     if (!book) return std::unexpected(book.error());
                                     return book->line_to_revoke(*id, now);
                                   }));
  std::printf("nobody else joins by %s; who has come by it stays\n", flags.id.c_str());
  return {};
}

}  // namespace

void add_invite_command(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<InviteFlags>();
  CLI::App* command = app.add_subcommand("invite", "Create, list or revoke join strings");
  const auto run_option = [&](CLI::App* of) {
    of->add_option("run", flags->run, "The run folder; default: the newest under runs/")
        ->type_name("RUN_FOLDER");
  };
  const auto does = [&](CLI::App* of, Result<void> (*act)(const InviteFlags&)) {
    of->callback([flags, act, of, &exit_code] {
      if (!of->get_subcommands().empty()) return;  // that one has done it
      const auto done = act(*flags);
      exit_code = done ? kExitDone : report_error(done.error());
    });
  };
  command->require_subcommand(0, 1);
  run_option(command);
  command->add_option("--ttl", flags->life, "How long it can be used")
      ->capture_default_str()
      ->type_name("TIME");
  command->add_option("--uses", flags->uses, "How many peers can use it; 0: unlimited")
      ->capture_default_str()
      ->type_name("N");
  command
      ->add_option("--scope", flags->scope,
                   "peer: serves the run; observer: sees its status; admin: controls it, too")
      ->check(CLI::IsMember({"peer", "observer", "admin"}))
      ->capture_default_str()
      ->type_name("SCOPE");
  does(command, make);
  CLI::App* list_all = command->add_subcommand("list", "List join strings, without their secrets");
  run_option(list_all);
  list_all->add_flag("--json", flags->json, "One JSON object per line");
  does(list_all, list);
  CLI::App* revoke_one =
      command->add_subcommand("revoke", "Revoke a join string: nobody can join with it any more");
  revoke_one->add_option("id", flags->id, "Id of the invite, as \"invite list\" shows it")
      ->required()
      ->type_name("ID");
  run_option(revoke_one);
  does(revoke_one, revoke);
  command->footer(
      "Peers that have joined stay when an invite expires, is used up or revoked.\nExample: "
      "swarmline invite runs/quickstart --ttl 2h --uses 3");
}

}  // namespace swarmline
