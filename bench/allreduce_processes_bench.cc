// An all-reduce as it runs: every member a process of its own, over loopback TCP, with the code
// that averages gradients. Arguments: MiB of fp32 a member, members, codec of both halves. Time: a
// round, of the member that took longest. Counters: bytes_per_second of the members' vectors; `cpu`
// = CPU milliseconds a round and member; `memcpy` = that speed as a share of copying every member's
// vector once, one after the other, in this process; `wire` = bytes a member sends per byte of its
// vector. The sums are checked before anything is timed. Beside gloo: swarmline bench allreduce.
#include <algorithm>
#include <string>
#include <string_view>

#include <benchmark/benchmark.h>

#include "base/units.h"
#include "bench/copy_rate.h"
#include "tools/measure/member_group.h"

namespace swarmline {
namespace {

void all_reduce(benchmark::State& state, const CodecSpec& codec) {
  const auto bytes = static_cast<std::uint64_t>(state.range(0)) * kMiB;
  const auto members = static_cast<std::uint32_t>(state.range(1));
  auto group = MemberGroup::own({.members = members, .bytes = bytes}, codec);
  if (!group) return state.SkipWithError(group.error().what.c_str());
  const double copy = bench::copy_seconds(bytes) * members;
  double seconds = 0, cpu = 0, wire = 0;
  for (auto _ : state) {
    const auto sample = group->run(1);
    if (!sample) return state.SkipWithError(sample.error().what.c_str());
    state.SetIterationTime(sample->seconds);
    seconds += sample->seconds;
    cpu += sample->cpu_seconds;
    wire += static_cast<double>(sample->wire_bytes);
  }
  const auto rounds = static_cast<double>(state.iterations());
  const double moved = static_cast<double>(bytes * members) * rounds;
  state.SetBytesProcessed(static_cast<std::int64_t>(moved));
  state.counters["cpu"] = 1e3 * cpu / rounds;
  state.counters["memcpy"] = copy * rounds / seconds;
  state.counters["wire"] = wire / moved;
}

// MiB x members: every size with two, every number of members with 16 MiB.
constexpr std::pair<int, int> kCases[] = {{1, 2}, {16, 2}, {64, 2}, {256, 2},
                                          {1, 8}, {16, 4}, {16, 8}, {256, 8}};
// Of the test, which runs every other case for a moment.
constexpr int kBriefMib = 16;

void register_all(bool brief) {
  for (const char* kind : {"none", "bf16", "lin8"}) {
    const CodecSpec codec = *parse_codec(kind);
    auto* bench = benchmark::RegisterBenchmark(
        ("processes/" + to_string(codec)).c_str(),
        [codec](benchmark::State& state) { all_reduce(state, codec); });
    for (const auto& [mib, members] : kCases)
      if (!brief || mib < kBriefMib) bench->Args({mib, members});
    bench->ArgNames({"mib", "members"})->UseManualTime()->Unit(benchmark::kMillisecond);
  }
}

}  // namespace
}  // namespace swarmline

// --brief: small vectors alone.
int main(int argc, char** argv) {
  const bool brief = argc > 1 && std::string_view(argv[1]) == "--brief";
  if (brief) {
    std::swap(argv[1], argv[argc - 1]);
    --argc;
  }
  swarmline::register_all(brief);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
