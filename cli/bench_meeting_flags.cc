#include "cli/bench_meeting_flags.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include <fmt/format.h>

#include "engine/config/run_config.h"
#include "node/run_access.h"

namespace swarmline {
namespace {

constexpr double kWaitSecondsMax = 24 * 3600.0;

std::unexpected<Error> meeting_mistake(std::string sentence) {
  return fail(ErrorCode::kUserMistake, std::move(sentence));
}

void say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

// Whom to dial, and by which string.
Result<JoinTarget> target_of(const MeetingFlags& flags, std::string_view what) {
  const std::string command = command_of(what);
  auto target = parse_join(flags.join);
  if (!target && flags.join.starts_with(kJoinStringBegins))
    return meeting_mistake(fmt::format("{}: {}", command, target.error().what));
  if (!target || (!target->invite && !flags.insecure))
    return meeting_mistake(
        fmt::format("{}: --join {}: expected the string that swarmline {} "
                    "--listen printed (swarm1...@HOST:PORT); HOST:PORT alone "
                    "joins with --insecure, without any protection",
                    command, flags.join, command));
  if (target->invite && target->invite->run != what)
    return meeting_mistake(
        fmt::format("{}: --join: that string joins {}, expected the one that swarmline "
                    "{} --listen printed",
                    command, command_of(target->invite->run), command));
  if (target->invite && flags.insecure)
    return meeting_mistake(
        fmt::format("{}: --insecure: the other end's links are between keys, as the "
                    "string in --join says; leave --insecure out",
                    command));
  return target;
}

}  // namespace

void add_meeting_flags(CLI::App& command, MeetingFlags& flags, const std::vector<std::string>& here,
                       const std::vector<std::string>& host) {
  CLI::Option* const listen =
      command
          .add_option("--listen", flags.listen,
                      "Measure between machines: listen here, e.g. 0.0.0.0:7500, and print the "
                      "line by which the others join")
          ->type_name("HOST:PORT");
  CLI::Option* const join =
      command
          .add_option("--join", flags.join,
                      "Take part in what another machine measures, by the string that it printed")
          ->type_name("STRING");
  join->excludes(listen);
  CLI::Option* const advertise =
      command
          .add_option("--advertise", flags.advertise,
                      "With --listen: the address that others reach it at, where it is none of "
                      "this machine's own")
          ->type_name("HOST:PORT");
  CLI::Option* const wait = command
                                .add_option("--wait", flags.wait_seconds,
                                            "With --listen: seconds to wait for the other machines")
                                ->check(CLI::Range(1.0, kWaitSecondsMax))
                                ->capture_default_str();
  command.add_flag("--insecure", flags.insecure,
                   "Between machines: plain links to whoever comes, on a network of one's own; at "
                   "both ends");
  command
      .add_option("--trusted", flags.trusted,
                  "Between machines: networks in which payloads may travel unprotected, as "
                  "security.trusted_networks; ucx and rdma need it at both ends")
      ->delimiter(',')
      ->type_name("NETWORK,...");
  for (CLI::Option* const of_host : {advertise, wait}) {
    of_host->needs(listen);
    of_host->excludes(join);
  }
  for (const std::string& name : here) {
    listen->excludes(command.get_option(name));
    join->excludes(command.get_option(name));
  }
  for (const std::string& name : host) join->excludes(command.get_option(name));
}

Result<void> check_alone(const MeetingFlags& flags, std::string_view what) {
  for (const auto& [name, is_given] :
       {std::pair("--insecure", flags.insecure), std::pair("--trusted", !flags.trusted.empty()),
        std::pair("--mbit", flags.mbit > 0)})
    if (is_given)
      return meeting_mistake(
          fmt::format("{}: {} is of measurements between machines; expected "
                      "--listen or --join beside it",
                      command_of(what), name));
  return {};
}

Result<std::vector<IpRange>> trusted_of(const MeetingFlags& flags) {
  std::vector<IpRange> trusted;
  for (const std::string& text : flags.trusted) {
    const auto range = IpRange::parse(text);
    if (!range) return meeting_mistake("--trusted: " + range.error().what);
    trusted.push_back(*range);
  }
  return trusted;
}

Result<void> check_meeting_ways(const MeetingFlags& flags, const std::vector<std::string>& ways) {
  const std::string other = flags.insecure ? "tls" : "tcp";
  if (std::ranges::find(ways, other) == ways.end()) return {};
  return meeting_mistake(
      flags.insecure ? "--ways tls: links are plain with --insecure; expected tcp, or leave "
                       "--insecure out"
                     : "--ways tcp: links between machines are between keys; expected tls, or "
                       "--insecure for plain ones");
}

Result<std::unique_ptr<MeetingHost>> gather_meeting(const MeetingFlags& flags,
                                                    std::string_view what, std::uint32_t members) {
  const std::string command = command_of(what);
  const auto listen = parse_address(flags.listen);
  if (!listen)
    return meeting_mistake(
        fmt::format("{}: --listen {}: {}", command, flags.listen, listen.error().what));
  auto host =
      std::make_unique<MeetingHost>(MeetingHostSpec{.what = what,
                                                    .program = SWARMLINE_VERSION,
                                                    .members = members,
                                                    .wait = from_seconds(flags.wait_seconds),
                                                    .insecure = flags.insecure});
  RunConfig reached;
  reached.net.advertise = flags.advertise;
  if (const auto opened =
          host->open(*listen, [&](const Address& bound) { return reached_at(reached, bound); });
      !opened)
    return meeting_mistake(
        fmt::format("{}: {}; give another address by --listen HOST:PORT (port "
                    "0: any free one)",
                    command, opened.error().what));
  say(fmt::format("{} other machine{} join{} within {:.0f} s by:\nswarmline {} --join '{}'{}",
                  members - 1, members > 2 ? "s" : "", members > 2 ? "" : "s", flags.wait_seconds,
                  command, host->join_text(), flags.insecure ? " --insecure" : ""));
  SWARMLINE_TRY(host->gather(say));
  return host;
}

Result<void> end_meeting(MeetingHost& host, Result<void> done) {
  if (!done)
    if (auto left = host.who_left()) done = std::unexpected(std::move(*left));
  host.end(done ? "" : done.error().what);
  return done;
}

Result<void> join_meeting(
    const MeetingFlags& flags, std::string_view what,
    const std::function<Result<void>(MeetingGuest&, const std::vector<IpRange>&)>& serve) {
  auto target = target_of(flags, what);
  if (!target) return std::unexpected(std::move(target).error());
  const auto trusted = trusted_of(flags);
  if (!trusted) return std::unexpected(trusted.error());
  MeetingGuest guest({.what = what,
                      .program = SWARMLINE_VERSION,
                      .addresses = std::move(target->coordinators),
                      .join = std::move(target->invite),
                      .mbit_per_second = flags.mbit});
  SWARMLINE_TRY(guest.join());
  say(
      fmt::format("{}: joined {}, which measures with this machine and prints the table; this end "
                  "ends with it",
                  command_of(what), to_string(guest.host())));
  SWARMLINE_TRY(serve(guest, *trusted));
  say(fmt::format("{}: over", command_of(what)));
  return {};
}

}  // namespace swarmline
