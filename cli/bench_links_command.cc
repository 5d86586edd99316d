#include <cstdio>

#include <fmt/format.h>

#include "cli/bench_meeting_flags.h"
#include "cli/commands.h"
#include "console/exit_codes.h"
#include "engine/runtime/asio_runtime.h"
#include "engine/store/files.h"
#include "tools/measure/bench_links_report.h"
#include "tools/measure/bench_machine.h"
#include "tools/measure/far_links.h"
#include "tools/measure/measured_link.h"

namespace swarmline {
namespace {

constexpr int kLinkRoundsMax = 1000;
constexpr std::uint32_t kLinkMachinesMax = 64;

struct LinkFlags {
  std::vector<std::string> ways = {"tcp", "tls", "shm", "ucx"};
  std::vector<std::uint64_t> kib = {64, 1024, 16 * 1024, 64 * 1024, 256 * 1024};
  int rounds = 5;
  std::string json;
  std::uint32_t members = 2;
  MeetingFlags meeting;
  bool has_ways = false;
};

LinkBenchOptions options_of(const LinkFlags& flags) {
  LinkBenchOptions options{.ways = flags.ways, .bytes = {}, .rounds = flags.rounds};
  for (const std::uint64_t kib : flags.kib) options.bytes.push_back(kib * kKiB);
  return options;
}

// Prints as results come, and writes the report; `measure` makes them.
using MeasureLinks =
    std::function<Result<LinkBenchResult>(const SecondsClock&, const LinkBenchNews&)>;
Result<void> report_links(const LinkFlags& flags, const std::string& head, std::size_t cases,
                          const MeasureLinks& measure) {
  const AsioRuntime runtime;
  LinkBenchReport report{.machine = processor_name(),
                         .cores = processor_cores(),
                         .wall_seconds = runtime.wall_seconds(),
                         .rounds = flags.rounds,
                         .result = {}};
  std::printf("%s, %d cores\n\n%s\n", report.machine.c_str(), report.cores, head.c_str());
  BenchProgress progress(cases);
  auto result = measure(seconds_clock(runtime),
                        {.on_begin = [&](const std::string& what) { progress.begin(what); },
                         .on_rate = [&](const LinkRate& rate) { progress.end(rate_line(rate)); },
                         .on_trip = [&](const LinkTrip& trip) { progress.end(trip_line(trip)); },
                         .on_far = [&](const std::string& far) { progress.end("with " + far); }});
  progress.clear();
  if (!result) return std::unexpected(std::move(result).error());
  report.result = std::move(*result);
  for (const auto& [way, why] : report.result.left_out)
    std::printf("%s is left out: %s\n", way.c_str(), why.c_str());
  if (!flags.json.empty()) return write_text_file_atomically(flags.json, to_json(report));
  return {};
}

Result<void> bench_links_apart(LinkFlags flags) {
  if (!flags.has_ways) flags.ways = {flags.meeting.frames_way()};
  SWARMLINE_TRY(check_link_ways(flags.ways));
  SWARMLINE_TRY(check_meeting_ways(flags.meeting, flags.ways));
  const auto trusted = trusted_of(flags.meeting);
  if (!trusted) return std::unexpected(trusted.error());
  auto host = gather_meeting(flags.meeting, kLinksMeeting, flags.members);
  if (!host) return std::unexpected(std::move(host).error());
  const FarLinkOptions options{.of = options_of(flags),
                               .trusted = *trusted,
                               .listen_host = parse_address(flags.meeting.listen)->host};
  const std::size_t of_way = 2 * flags.kib.size() + 2;
  auto done =
      report_links(flags, far_link_bench_head(), (*host)->guests() * flags.ways.size() * of_way,
                   [&](const SecondsClock& clock, const LinkBenchNews& news) {
                     return bench_far_links(**host, options, clock, news);
                   });
  return end_meeting(**host, std::move(done));
}

Result<void> run_bench_links(const LinkFlags& flags) {
  if (!flags.meeting.join.empty())
    return join_meeting(flags.meeting, kLinksMeeting, serve_far_links);
  if (!flags.meeting.listen.empty()) return bench_links_apart(flags);
  SWARMLINE_TRY(check_alone(flags.meeting, kLinksMeeting));
  const LinkBenchOptions options = options_of(flags);
  return report_links(flags, link_bench_head(), flags.ways.size() * (flags.kib.size() + 2),
                      [&](const SecondsClock& clock, const LinkBenchNews& news) {
                        return bench_links(options, clock, news);
                      });
}

}  // namespace

void add_bench_links_command(CLI::App& bench, int& exit_code) {
  auto flags = std::make_shared<LinkFlags>();
  CLI::App* command = bench.add_subcommand(
      "links",
      "What links between peers of this machine, or of two, give, beside a plain socket and "
      "memcpy");
  command
      ->add_option("--ways", flags->ways,
                   "Ways that payloads go: tcp, tls (TCP between keys), shm, ucx, rdma, "
                   "streams (several connections); default tcp,tls,shm,ucx")
      ->delimiter(',')
      ->type_name("NAME,...");
  command
      ->add_option("--kib", flags->kib,
                   "Sizes of a payload in KiB; default 64,1024,16384,65536,262144")
      ->delimiter(',')
      ->check(CLI::Range(std::uint64_t{1}, kLinkBenchBytesMax / kKiB))
      ->type_name("N,...");
  command->add_option("--rounds", flags->rounds, "Number of rounds, of which the median counts")
      ->check(CLI::Range(1, kLinkRoundsMax))
      ->capture_default_str();
  command
      ->add_option("--members", flags->members,
                   "With --listen: number of machines, this one included, each of the others with "
                   "this one")
      ->check(CLI::Range(std::uint32_t{2}, kLinkMachinesMax))
      ->capture_default_str();
  command
      ->add_option("--json", flags->json,
                   "Write the results to this file as JSON (docs/formats/bench.md)")
      ->type_name("FILE");
  add_meeting_flags(*command, flags->meeting, {},
                    {"--ways", "--kib", "--rounds", "--json", "--members"});
  command->get_option("--members")->needs(command->get_option("--listen"));
  command->footer(
      "Which way a run's payloads go: docs/transports.md. Between machines links are as a run's: "
      "TLS between keys, let in by the string's secret, in both directions (from there, to there); "
      "default is that way alone (tls, with --insecure tcp). The other machine dials the port of "
      "--listen, and a free one for the plain socket, which carries zeros only.\n"
      "Examples:\n"
      "  swarmline bench links\n"
      "  swarmline bench links --ways tcp,shm --kib 1024,16384 --json links.json\n"
      "  swarmline bench links --listen 0.0.0.0:7500");
  command->callback([flags, command, &exit_code] {
    flags->has_ways = command->count("--ways") > 0;
    auto done = run_bench_links(*flags);
    exit_code = done ? kExitDone : report_error(done.error());
  });
}

}  // namespace swarmline
