#include "tools/measure/bench_allreduce.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>

#include "base/bytes.h"
#include "base/order_statistics.h"
#include "base/units.h"
#include "engine/runtime/asio_runtime.h"
#include "engine/store/json_writer.h"

namespace swarmline {
namespace {

constexpr double kMs = 1e3;
constexpr std::uint64_t kMibATurn = 128;  // about so much is reduced in one turn of a side
constexpr std::uint32_t kRoundsATurnMax = 32;

// Processes that only compute, for as long as it lives.
class BusyProcesses {
 public:
  explicit BusyProcesses(std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) {
      const pid_t pid = ::fork();
      if (pid == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (volatile std::uint64_t spun = 0;;) spun = spun + 1;
      }
      if (pid > 0) pids_.push_back(pid);
    }
  }
  ~BusyProcesses() {
    for (const pid_t pid : pids_) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
  }
  BusyProcesses(const BusyProcesses&) = delete;
  BusyProcesses& operator=(const BusyProcesses&) = delete;

 private:
  std::vector<pid_t> pids_;
};

double copy_once(const Runtime& clock, const Buffer& from, Buffer& to) {
  const Instant start = clock.now();
  std::memcpy(to.data(), from.data(), from.size());
  asm volatile("" : : "r"(to.data()) : "memory");
  return to_seconds(clock.now() - start);
}

void take_medians(AllReduceSide& side) {
  std::vector<double> seconds, cpu_seconds;
  for (const ReduceSample& turn : side.turns) {
    seconds.push_back(turn.seconds);
    cpu_seconds.push_back(turn.cpu_seconds);
  }
  side.seconds = median(seconds);
  side.cpu_seconds = median(cpu_seconds);
}

void write_side(JsonWriter& json, std::string_view name, const AllReduceSide& side) {
  json.key(name).begin_object().member("seconds", side.seconds);
  json.member("cpu_seconds", side.cpu_seconds).key("turns").begin_array();
  for (const ReduceSample& turn : side.turns) json.value(turn.seconds);
  json.end_array().end_object();
}

}  // namespace

Result<AllReduceRow> measure_allreduce(const AllReduceBenchSpec& spec, std::uint64_t mib,
                                       std::uint32_t members) {
  const MemberGroupSpec of{.members = members, .bytes = mib * kMiB};
  auto own = MemberGroup::own(of, spec.codec);
  if (!own) return std::unexpected(own.error());
  std::optional<MemberGroup> gloo;
  if (!spec.gloo_python.empty()) {
    auto started = MemberGroup::gloo(of, spec.gloo_python);
    if (!started) return std::unexpected(started.error());
    gloo.emplace(std::move(*started));
  }
  const BusyProcesses busy(spec.busy);
  const AsioRuntime clock;
  const auto rounds =
      static_cast<std::uint32_t>(std::clamp<std::uint64_t>(kMibATurn / mib, 1, kRoundsATurnMax));
  AllReduceRow row{.mib = mib, .members = members};
  if (gloo) row.gloo.emplace();
  const Buffer from = Buffer::zeroed(of.bytes);
  Buffer to = Buffer::zeroed(of.bytes);
  std::vector<double> copies, ratios;
  for (int turn = 0; turn <= spec.turns; ++turn) {  // the first brings everything in
    const auto ours = own->run(rounds);
    if (!ours) return std::unexpected(ours.error());
    Result<ReduceSample> theirs = ReduceSample{};
    if (gloo) theirs = gloo->run(rounds);
    if (!theirs) return std::unexpected(theirs.error());
    const double copied = copy_once(clock, from, to);
    if (turn == 0) continue;
    row.own.turns.push_back(*ours);
    row.wire_bytes = ours->wire_bytes;
    copies.push_back(copied);
    if (!gloo) continue;
    row.gloo->turns.push_back(*theirs);
    ratios.push_back(theirs->seconds / ours->seconds);
  }
  take_medians(row.own);
  row.copy_seconds = median(copies);
  if (gloo) {
    take_medians(*row.gloo);
    row.ahead = median(ratios);
  }
  return row;
}

std::string allreduce_head(const AllReduceBenchSpec& spec) {
  return fmt::format(
      "A round of {} between processes over loopback TCP{}: milliseconds, of CPU a member in "
      "brackets\n{:>5} {:>8}  {:>17}  {:>17}  {:>8}  {:>8}  {:>8}",
      to_string(spec.codec),
      spec.busy > 0
          ? fmt::format(", beside {} busy process{}", spec.busy, spec.busy > 1 ? "es" : "")
          : "",
      "MiB", "members", "ours (TCP)", "gloo", "ahead", "memcpy", "wire");
}

std::string allreduce_line(const AllReduceRow& row) {
  const auto side = [](const AllReduceSide& s) {
    return fmt::format("{:>8.2f} ({:>6.2f})", s.seconds * kMs, s.cpu_seconds * kMs);
  };
  const double moved = static_cast<double>(row.mib * kMiB * row.members);
  return fmt::format("{:>5} {:>8}  {:>17}  {:>17}  {:>8}  {:>8.2f}  {:>7.2f}x", row.mib,
                     row.members, side(row.own), row.gloo ? side(*row.gloo) : "-",
                     row.ahead ? fmt::format("{:.2f}x", *row.ahead) : "-", row.copy_seconds * kMs,
                     static_cast<double>(row.wire_bytes) / moved);
}

std::string to_json(const AllReduceReport& report) {
  JsonWriter json(1);
  json.begin_object().member("format", kAllReduceBenchFormat).member("kind", "allreduce");
  json.member("wall_seconds", report.wall_seconds).member("machine", report.machine);
  json.member("cores", report.cores).member("codec", to_string(report.spec.codec));
  json.member("busy", report.spec.busy).key("rows").begin_array();
  for (const AllReduceRow& row : report.rows) {
    json.begin_object().member("mib", row.mib).member("members", row.members);
    write_side(json, "own", row.own);
    if (row.gloo) write_side(json, "gloo", *row.gloo);
    if (row.ahead) json.member("ahead", *row.ahead);
    json.member("copy_seconds", row.copy_seconds).member("wire_bytes", row.wire_bytes).end_object();
  }
  json.end_array().end_object();
  return json.take() + "\n";
}

}  // namespace swarmline
