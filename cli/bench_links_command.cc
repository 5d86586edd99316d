#include <cstdio>

#include "cli/commands.h"
#include "console/exit_codes.h"
#include "engine/runtime/asio_runtime.h"
#include "engine/store/files.h"
#include "tools/measure/bench_links_report.h"
#include "tools/measure/bench_machine.h"

namespace swarmline {
namespace {

constexpr int kLinkRoundsMax = 1000;

struct LinkFlags {
  std::vector<std::string> ways = {"tcp", "tls", "shm", "ucx"};
  std::vector<std::uint64_t> kib = {64, 1024, 16 * 1024, 64 * 1024, 256 * 1024};
  int rounds = 5;
  std::string json;
};

Result<void> run_bench_links(const LinkFlags& flags) {
  LinkBenchOptions options{.ways = flags.ways, .bytes = {}, .rounds = flags.rounds};
  for (const std::uint64_t kib : flags.kib) options.bytes.push_back(kib * kKiB);
  const AsioRuntime runtime;
  const SecondsClock clock = seconds_clock(runtime);
  LinkBenchReport report{.machine = processor_name(),
                         .cores = processor_cores(),
                         .wall_seconds = runtime.wall_seconds(),
                         .rounds = flags.rounds,
                         .result = {}};
  std::printf("%s, %d cores\n\n%s\n", report.machine.c_str(), report.cores,
              link_bench_head().c_str());
  BenchProgress progress(flags.ways.size() * (flags.kib.size() + 2));
  auto result =
      bench_links(options, clock,
                  {.on_begin = [&](const std::string& what) { progress.begin(what); },
                   .on_rate = [&](const LinkRate& rate) { progress.end(rate_line(rate)); },
                   .on_trip = [&](const LinkTrip& trip) { progress.end(trip_line(trip)); }});
  progress.clear();
  if (!result) return std::unexpected(std::move(result).error());
  report.result = std::move(*result);
  for (const auto& [way, why] : report.result.left_out)
    std::printf("%s is left out: %s\n", way.c_str(), why.c_str());
  if (!flags.json.empty()) return write_text_file_atomically(flags.json, to_json(report));
  return {};
}

}  // namespace

void add_bench_links_command(CLI::App& bench, int& exit_code) {
  auto flags = std::make_shared<LinkFlags>();
  CLI::App* command = bench.add_subcommand(
      "links", "What links between peers of this machine give, beside a plain socket and memcpy");
  command
      ->add_option("--ways", flags->ways,
                   "Ways that payloads go: tcp, tls (TCP between keys), shm, ucx, rdma; default "
                   "tcp,tls,shm,ucx")
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
      ->add_option("--json", flags->json,
                   "Write the results to this file as JSON (docs/formats/bench.md)")
      ->type_name("FILE");
  command->footer(
      "Which way a run's payloads go: docs/transports.md.\n"
      "Examples:\n"
      "  swarmline bench links\n"
      "  swarmline bench links --ways tcp,shm --kib 1024,16384 --json links.json");
  command->callback([flags, &exit_code] {
    auto done = run_bench_links(*flags);
    exit_code = done ? kExitDone : report_error(done.error());
  });
}

}  // namespace swarmline
