#include <algorithm>
#include <cstdio>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "cli/bench_meeting_flags.h"
#include "cli/commands.h"
#include "console/exit_codes.h"
#include "engine/runtime/asio_runtime.h"
#include "engine/store/files.h"
#include "tools/measure/bench_allreduce.h"
#include "tools/measure/bench_machine.h"
#include "tools/measure/far_members.h"

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
  MeetingFlags meeting;
  bool has_ways = false, has_members = false;
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

Result<void> take_codec(AllReduceFlags& flags) {
  const auto codec = parse_codec(flags.codec);
  if (!codec)
    return fail(ErrorCode::kUserMistake, "bench allreduce: --codec: " + codec.error().what);
  flags.spec.codec = *codec;
  flags.spec.codec.checksums = !flags.no_checksums;
  return {};
}

// Prints as rows come, and writes the report.
Result<void> report_allreduce(const AllReduceFlags& flags, std::vector<std::string> hosts) {
  AllReduceReport report{.machine = processor_name(),
                         .cores = processor_cores(),
                         .wall_seconds = AsioRuntime().wall_seconds(),
                         .spec = flags.spec,
                         .rows = {},
                         .hosts = std::move(hosts)};
  std::printf("%s, %d cores\n\n%s\n", report.machine.c_str(), report.cores,
              allreduce_head(flags.spec).c_str());
  std::fflush(stdout);
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

// Where each machine says what its line gives, slices are cut by that.
std::vector<double> lines_of(const MeetingHost& host, double own) {
  std::vector<double> lines = {own};
  for (std::size_t guest = 0; guest < host.guests(); ++guest)
    lines.push_back(host.hello_of(guest).mbit_per_second);
  const bool all_say = std::ranges::all_of(lines, [](double line) { return line > 0; });
  return all_say ? lines : std::vector<double>();
}

Result<void> bench_allreduce_apart(AllReduceFlags flags) {
  AllReduceBenchSpec& spec = flags.spec;
  if (!flags.has_ways) spec.ways = {flags.meeting.frames_way()};
  SWARMLINE_TRY(check_meeting_ways(flags.meeting, spec.ways));
  if (!flags.has_members) spec.members = {2};
  if (spec.members.size() != 1)
    return fail(ErrorCode::kUserMistake,
                "bench allreduce: --members has several numbers, expected one with --listen");
  const auto trusted = trusted_of(flags.meeting);
  if (!trusted) return std::unexpected(trusted.error());
  auto host = gather_meeting(flags.meeting, kAllReduceMeeting, spec.members.front());
  if (!host) return std::unexpected(std::move(host).error());
  MeetingMembers members(**host, *trusted);
  spec.far = &members;
  spec.lines = lines_of(**host, flags.meeting.mbit);
  std::vector<std::string> hosts;
  for (std::size_t guest = 0; guest < (*host)->guests(); ++guest) {
    hosts.push_back((*host)->host_of(guest));
    std::printf("member %zu is %s\n", guest + 1, hosts.back().c_str());
  }
  return end_meeting(**host, report_allreduce(flags, std::move(hosts)));
}

Result<void> bench_allreduce(AllReduceFlags flags) {
  if (!flags.meeting.join.empty())
    return join_meeting(flags.meeting, kAllReduceMeeting, serve_far_members);
  SWARMLINE_TRY(take_codec(flags));
  if (!flags.meeting.listen.empty()) return bench_allreduce_apart(std::move(flags));
  SWARMLINE_TRY(check_alone(flags.meeting, kAllReduceMeeting));
  if (std::ranges::find(flags.spec.ways, "tls") != flags.spec.ways.end())
    return fail(ErrorCode::kUserMistake,
                "bench allreduce: --ways tls: links within this machine are plain; expected it "
                "with --listen alone");
  SWARMLINE_TRY(take_lines(flags));
  SWARMLINE_TRY(find_gloo(flags));
  return report_allreduce(flags, {});
}

}  // namespace

void add_bench_allreduce_command(CLI::App& bench, int& exit_code) {
  auto flags = std::make_shared<AllReduceFlags>();
  CLI::App* command = bench.add_subcommand("allreduce",
                                           "An all-reduce between processes of this machine, "
                                           "beside PyTorch's gloo, or between machines");
  command
      ->add_option("--mib", flags->spec.mib,
                   "Sizes of each member's fp32 vector in MiB; default 1,4,16,64,256")
      ->delimiter(',')
      ->check(CLI::Range(std::uint64_t{1}, kAllReduceMibMax))
      ->type_name("N,...");
  command
      ->add_option("--members", flags->spec.members,
                   "Numbers of processes; default 2,4; with --listen one number of machines, this "
                   "one included, default 2")
      ->delimiter(',')
      ->check(CLI::Range(std::uint32_t{2}, MemberGroup::kMembersMax))
      ->type_name("N,...");
  command
      ->add_option("--ways", flags->spec.ways,
                   "Ways that chunks go; default tcp,shm,ucx; between machines tls")
      ->delimiter(',')
      ->check(CLI::IsMember({"tcp", "tls", "shm", "ucx", "rdma", "streams"}))
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
  add_meeting_flags(
      *command, flags->meeting, {"--lines", "--busy", "--python", "--no-gloo"},
      {"--mib", "--members", "--ways", "--codec", "--no-checksums", "--turns", "--json"});
  command
      ->add_option("--mbit", flags->meeting.mbit,
                   "Between machines: Mbit/s that this machine's line gives either way; slices are "
                   "cut by that where all machines say it")
      ->check(CLI::Range(kLineMbitMin, kLineMbitMax));
  command->footer(
      "A turn is about 128 MiB of ours over each way, then as much over plain sockets that neither "
      "add nor check it, which no all-reduce over TCP can be faster than, and of gloo's, then a "
      "copy. What "
      "stands after the brackets is gloo's time over ours, turn by turn, the median. Behind lines "
      "slices are cut by their rates, as a run cuts them by what peers say of theirs, and the last "
      "column is what the busiest line takes for the bytes that go. Between machines each member "
      "listens at a free port, which the others have to reach, and a turn is about two seconds.\n"
      "Examples:\n"
      "  swarmline bench allreduce\n"
      "  swarmline bench allreduce --members 2 --mib 1,16 --codec lin8\n"
      "  swarmline bench allreduce --ways tcp,shm --no-gloo\n"
      "  swarmline bench allreduce --busy 1 --json allreduce.json\n"
      "  swarmline bench allreduce --mib 64 --codec lin8 --lines 100,200,500,1000\n"
      "  swarmline bench allreduce --listen 0.0.0.0:7500 --members 3");
  command->callback([flags, command, &exit_code] {
    flags->has_ways = command->count("--ways") > 0;
    flags->has_members = command->count("--members") > 0;
    auto done = bench_allreduce(*flags);
    exit_code = done ? kExitDone : report_error(done.error());
  });
}

}  // namespace swarmline
