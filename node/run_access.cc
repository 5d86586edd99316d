#include "node/run_access.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "engine/config/link_security.h"
#include "engine/identity/key_file.h"
#include "engine/net/own_hosts.h"
#include "engine/store/files.h"
#include "engine/store/secret_file.h"

namespace swarmline {
namespace {

namespace fs = std::filesystem;

bool is_wildcard(const std::string& host) {
  return host == "0.0.0.0" || host == "::";
}

Result<std::vector<Address>> parse_addresses(const std::string& text) {
  std::vector<Address> addresses;
  std::string_view rest = text;
  do {
    const std::size_t end = std::min(rest.find(','), rest.size());
    auto address = parse_address(rest.substr(0, end));
    if (!address)
      return fail(ErrorCode::kUserMistake,
                  fmt::format("--join {}: expected the string that the coordinator prints "
                              "(swarm1...@HOST:PORT), a file that holds it, or HOST:PORT of a "
                              "coordinator on this machine, e.g. 127.0.0.1:7400",
                              text));
    addresses.push_back(std::move(*address));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  } while (!rest.empty());
  return addresses;
}

Result<std::string> first_line(std::string text, const std::string& where) {
  text.resize(std::min(text.find('\n'), text.size()));
  while (!text.empty() && (text.back() == '\r' || text.back() == ' ')) text.pop_back();
  if (!text.empty()) return text;
  return fail(ErrorCode::kUserMistake, fmt::format("{} holds no join string", where));
}

Result<std::string> line_of_input() {
  std::string text;
  for (int c = std::getchar(); c != EOF && c != '\n'; c = std::getchar()) {
    text.push_back(static_cast<char>(c));
    if (text.size() > kJoinStringBytesMax)
      return fail(ErrorCode::kUserMistake,
                  "the standard input holds no join string: it is too long");
  }
  return first_line(std::move(text), "the standard input");
}

}  // namespace

Result<void> make_keys_folder(const RunFolder& folder) {
  SWARMLINE_TRY(make_folders(folder.keys()));
  std::error_code error;
  fs::permissions(folder.keys(), fs::perms::owner_all, error);
  if (!error) return {};
  return fail(ErrorCode::kIo, fmt::format("cannot keep {} for its owner alone: {}", folder.keys(),
                                          error.message()));
}

Result<std::shared_ptr<RunGuard>> open_run_guard(const RunFolder& folder, const std::string& run,
                                                 Runtime& runtime, Device& worker) {
  SWARMLINE_TRY(make_keys_folder(folder));
  auto key = load_or_make_run_key(folder.run_key());
  if (!key) return std::unexpected(std::move(key).error());
  return std::make_shared<RunGuard>(std::move(*key), run, to_invite_file(folder.invites()), runtime,
                                    worker);
}

std::vector<Address> reached_at(const RunConfig& config, const Address& bound) {
  if (!config.net.advertise.empty())
    if (auto address = parse_address(config.net.advertise)) {
      if (address->port == 0) address->port = bound.port;
      return {std::move(*address)};
    }
  if (!is_wildcard(bound.host)) return {bound};
  std::vector<Address> addresses;
  for (std::string& host : own_hosts()) {
    const bool v6 = host.find(':') != std::string::npos;
    if (!v6 || bound.host == "::") addresses.push_back({std::move(host), bound.port});
  }
  if (addresses.empty())
    addresses.push_back({bound.host == "::" ? "::1" : "127.0.0.1", bound.port});
  return addresses;
}

// ---- Invites ------------------------------------------------------------------------------------

Result<InviteBook> read_invites(const RunFolder& folder) {
  auto lines = read_secret_file(folder.invites(), kInviteFileBytesMax);
  if (!lines && lines.error().code == ErrorCode::kNotFound) return InviteBook();
  if (!lines) return std::unexpected(std::move(lines).error());
  return InviteBook::parse(*lines);
}

Result<void> add_invite(const RunFolder& folder, const Invite& invite) {
  return rewrite_secret_file(folder.invites(), kInviteFileBytesMax,
                             [&](std::string_view lines) -> Result<std::string> {
                               const auto book = InviteBook::parse(lines);
                               if (!book) return std::unexpected(book.error());
                               return book->with(invite, invite.made);
                             });
}

Result<std::string> join_string_of(const RunFolder& folder, const std::string& run,
                                   const Invite& invite, std::vector<Address> addresses) {
  const auto key = load_key(folder.run_key());
  if (!key) return std::unexpected(key.error());
  if (addresses.size() > kJoinAddressesMax) addresses.resize(kJoinAddressesMax);
  return to_text(JoinString{.run = run,
                            .run_key = key->hash(),
                            .invite_id = invite.id,
                            .secret = invite.secret,
                            .addresses = std::move(addresses)});
}

Result<std::string> leave_join_string(const RunFolder& folder, const RunConfig& config,
                                      const Address& bound, double now) {
  const auto book = read_invites(folder);
  if (!book) return std::unexpected(book.error());
  const Invite* open = book->newest_open(InviteScope::kPeer, now);
  Invite invite;
  if (open != nullptr && open->expires - now >= kInviteLifeSeconds / 2) {
    invite = *open;
  } else {
    invite = make_invite(InviteScope::kPeer, now, kInviteLifeSeconds, 0);
    SWARMLINE_TRY(add_invite(folder, invite));
  }
  std::vector<Address> addresses = reached_at(config, bound);
  for (const std::string& text : config.net.standby)
    if (auto address = parse_address(text); address && address->port != 0)
      if (std::ranges::find(addresses, *address) == addresses.end())
        addresses.push_back(std::move(*address));
  auto join = join_string_of(folder, config.run.name, invite, std::move(addresses));
  if (!join) return join;
  SWARMLINE_TRY(replace_secret_file(folder.join_string(), *join + "\n"));
  return join;
}

void remove_join_string(const RunFolder& folder) {
  std::error_code ignored;  // there is none
  fs::remove(folder.join_string(), ignored);
}

// ---- Joining ------------------------------------------------------------------------------------

Result<JoinTarget> parse_join(const std::string& text) {
  std::string line = text;
  if (text == "-") {
    auto read = line_of_input();
    if (!read) return std::unexpected(std::move(read).error());
    line = std::move(*read);
  } else if (!text.starts_with(kJoinStringBegins) && file_exists(text) && !is_folder(text)) {
    auto file = read_text_file(text, kJoinStringBytesMax);
    if (!file) return fail(ErrorCode::kUserMistake, "--join: " + file.error().what);
    auto read = first_line(std::move(*file), text);
    if (!read) return std::unexpected(std::move(read).error());
    line = std::move(*read);
  }
  if (line.starts_with("swarm") && line.find('@') != std::string::npos) {
    auto join = parse_join_string(line);
    if (!join) return fail(ErrorCode::kUserMistake, "--join: " + join.error().what);
    return JoinTarget{.coordinators = join->addresses, .invite = std::move(*join)};
  }
  auto addresses = parse_addresses(line);
  if (!addresses) return std::unexpected(std::move(addresses).error());
  return JoinTarget{.coordinators = std::move(*addresses), .invite = std::nullopt};
}

}  // namespace swarmline
