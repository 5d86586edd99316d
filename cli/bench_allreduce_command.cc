#include <cstdio>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "cli/commands.h"
#include "console/exit_codes.h"
#include "engine/runtime/asio_runtime.h"
#include "engine/store/files.h"
#include "tools/measure/bench_allreduce.h"
#include "tools/measure/bench_machine.h"

namespace swarmline {
namespace {

constexpr std::uint64_t kAllReduceMibMax = 4096;
constexpr int kAllReduceTurnsMax = 1000;
constexpr std::uint32_t kBusyProcessesMax = 64;
constexpr double kLineMbitMin = 1;
constexpr double kLineMbitMax = 100'000;

struct AllReduceFlags {
  AllReduceBenchSpec spec;
  std::string codec = "none";
  std::string python, json;
  bool no_gloo = false;
  bool no_checksums = false;
};

Result<void> find_gloo(AllReduceFlags& flags) {
  if (flags.no_gloo) return {};
  flags.spec.gloo_python = find_gloo_python(flags.python);
  if (!flags.spec.gloo_python.empty()) return {};
  if (!flags.python.empty())
    return fail(ErrorCode::kUserMistake,
                fmt::format("--python {}: it cannot import torch.distributed with gloo; name a "
                            "Python that has PyTorch",
                            flags.python));
  std::printf("Without gloo: no Python with PyTorch is here (--python FILE names one).\n");
  return {};
}

// Lines say how many members there are, and nothing but TCP goes over them.
Result<void> take_lines(AllReduceFlags& flags) {
  AllReduceBenchSpec& spec = flags.spec;
  if (spec.lines.empty()) return {};
  if (spec.lines.size() < 2 || spec.lines.size() > EmulatedLines::kLinesMax)
    return fail(ErrorCode::kUserMistake,
                fmt::format("bench allreduce: --lines has {} of them, expected 2 to {}",
                            spec.lines.size(), EmulatedLines::kLinesMax));
  spec.members = {static_cast<std::uint32_t>(spec.lines.size())};
  spec.ways = {"tcp"};
  flags.no_gloo = true;
  return {};
}

Result<void> bench_allreduce(AllReduceFlags flags) {
  const auto codec = parse_codec(flags.codec);
  if (!codec)
    return fail(ErrorCode::kUserMistake, "bench allreduce: --codec: " + codec.error().what);
  flags.spec.codec = *codec;
  flags.spec.codec.checksums = !flags.no_checksums;
  SWARMLINE_TRY(take_lines(flags));
  SWARMLINE_TRY(find_gloo(flags));
  AllReduceReport report{.machine = processor_name(),
                         .cores = processor_cores(),
                         .wall_seconds = AsioRuntime().wall_seconds(),
                         .spec = flags.spec,
                         .rows = {}};
  std::printf("%s, %d cores\n\n%s\n", report.machine.c_str(), report.cores,
              allreduce_head(flags.spec).c_str());
  BenchProgress progress(flags.spec.members.size() * flags.spec.mib.size());
  for (const std::uint32_t members : flags.spec.members) {
    for (const std::uint64_t mib : flags.spec.mib) {
      progress.begin(fmt::format("{} MiB, {} members", mib, members));
      auto row = measure_allreduce(flags.spec, mib, members);
      if (!row) return std::unexpected(std::move(row).error());
      progress.end(allreduce_line(flags.spec, *row));
      report.rows.push_back(std::move(*row));
    }
  }
  for (const auto& [way, why] : report.rows.front().left_out)
    std::printf("%s is left out: %s\n", way.c_str(), why.c_str());
  if (flags.json.empty()) return {};
  return write_text_file_atomically(flags.json, to_json(report));
}

}  // namespace

void add_bench_allreduce_command(CLI::App& bench, int& exit_code) {
  auto flags = std::make_shared<AllReduceFlags>();
  CLI::App* command = bench.add_subcommand(
      "allreduce", "An all-reduce between processes of this machine, beside PyTorch's gloo");
  command
      ->add_option("--mib", flags->spec.mib,
                   "Sizes of each member's fp32 vector in MiB; default 1,4,16,64,256")
      ->delimiter(',')
      ->check(CLI::Range(std::uint64_t{1}, kAllReduceMibMax))
      ->type_name("N,...");
  command->add_option("--members", flags->spec.members, "Numbers of processes; default 2,4")
      ->delimiter(',')
      ->check(CLI::Range(std::uint32_t{2}, MemberGroup::kMembersMax))
      ->type_name("N,...");
  command->add_option("--ways", flags->spec.ways, "Ways that chunks go; default tcp,shm,ucx")
      ->delimiter(',')
      ->check(CLI::IsMember({"tcp", "shm", "ucx", "rdma"}))
      ->type_name("NAME,...");
  command->add_option("--codec", flags->codec, "Codec of ours; gloo has none")
      ->capture_default_str();
  command->add_flag("--no-checksums", flags->no_checksums,
                    "Leave checksums out, as codec.checksums = \"never\" does; gloo has none");
  command->add_option("--turns", flags->spec.turns, "Number of turns, of which the medians count")
      ->check(CLI::Range(1, kAllReduceTurnsMax))
      ->capture_default_str();
  command->add_option("--busy", flags->spec.busy, "Processes that take a core each meanwhile")
      ->check(CLI::Range(std::uint32_t{0}, kBusyProcessesMax))
      ->capture_default_str();
  CLI::Option* lines =
      command
          ->add_option("--lines", flags->spec.lines,
                       "Members behind emulated lines of so many Mbit/s either way, one each, over "
                       "TCP alone; needs root and iproute2")
          ->delimiter(',')
          ->check(CLI::Range(kLineMbitMin, kLineMbitMax))
          ->type_name("MBIT,...");
  for (const char* other : {"--members", "--ways"}) lines->excludes(command->get_option(other));
  command
      ->add_option("--python", flags->python,
                   "Python with PyTorch, for gloo; default .deps/compare/bin/python, then python3")
      ->type_name("FILE");
  command->add_flag("--no-gloo", flags->no_gloo, "Leave gloo out");
  command
      ->add_option("--json", flags->json,
                   "Write the results to this file as JSON (docs/formats/bench.md)")
      ->type_name("FILE");
  command->footer(
      "A turn is about 128 MiB of ours over each way, then as much over plain sockets that neither "
      "add nor check it, which no all-reduce over TCP can be faster than, and of gloo's, then a "
      "copy. What "
      "stands after the brackets is gloo's time over ours, turn by turn, the median. Behind lines "
      "slices are cut by their rates, as a run cuts them by what peers say of theirs, and the last "
      "column is what the busiest line takes for the bytes that go.\n"
      "Examples:\n"
      "  swarmline bench allreduce\n"
      "  swarmline bench allreduce --members 2 --mib 1,16 --codec lin8\n"
      "  swarmline bench allreduce --ways tcp,shm --no-gloo\n"
      "  swarmline bench allreduce --busy 1 --json allreduce.json\n"
      "  swarmline bench allreduce --mib 64 --codec lin8 --lines 100,200,500,1000");
  command->callback([flags, &exit_code] {
    auto done = bench_allreduce(*flags);
    exit_code = done ? kExitDone : report_error(done.error());
  });
}

}  // namespace swarmline
