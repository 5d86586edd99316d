#include <cstdio>

#include <fmt/format.h>

#include "cli/commands.h"
#include "console/exit_codes.h"
#include "engine/identity/key_file.h"
#include "node/run_access.h"

namespace swarmline {
namespace {

Result<void> show_keys(const std::string& text) {
  const auto folder = find_run_folder(text);
  if (!folder) return std::unexpected(folder.error());
  const auto key = load_key(folder->run_key());
  if (!key && key.error().code == ErrorCode::kNotFound) {
    std::printf("%s has no key: its links have stayed within this machine\n",
                folder->path().c_str());
    return {};
  }
  if (!key) return std::unexpected(key.error());
  const auto book = read_invites(*folder);
  if (!book) return std::unexpected(book.error());
  std::printf("run     %s  %s\n", to_string(key->hash()).c_str(), folder->run_key().c_str());
  for (const Invite& invite : book->invites())
    for (const KeyHash& admitted : invite.admitted)
      std::printf("%-8s%s  by invite %s\n", std::string(to_string(invite.scope)).c_str(),
                  to_string(admitted).c_str(), to_hex(as_bytes(invite.id)).c_str());
  return {};
}

}  // namespace

void add_keys_command(CLI::App& app, int& exit_code) {
  auto run = std::make_shared<std::string>();
  CLI::App* command =
      app.add_subcommand("keys", "Show the hashes of a run's key and of those that have come");
  command->add_option("run", *run, "The run folder; default: the newest under runs/")
      ->type_name("RUN_FOLDER");
  command->footer(
      "A hash is SHA-256 of the public key: \"openssl pkey -in runs/NAME/keys/run.key -pubout\n"
      "-outform DER | sha256sum\" prints the same.");
  command->callback([run, &exit_code] {
    const auto shown = show_keys(*run);
    exit_code = shown ? kExitDone : report_error(shown.error());
  });
}

}  // namespace swarmline
