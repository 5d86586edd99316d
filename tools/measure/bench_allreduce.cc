#include "tools/measure/bench_allreduce.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <memory>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/bytes.h"
#include "base/order_statistics.h"
#include "base/units.h"
#include "engine/collective/slices.h"
#include "engine/runtime/asio_runtime.h"
#include "engine/store/json_writer.h"

namespace swarmline {
namespace {

constexpr double kMs = 1e3;
constexpr std::uint64_t kMibATurn = 128;  // about so much is reduced in one turn of a side
constexpr std::uint32_t kRoundsATurnMax = 32;
constexpr double kLineTurnSeconds = 2;

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

void write_side(JsonWriter& json, const AllReduceSide& side) {
  json.member("seconds", side.seconds).member("cpu_seconds", side.cpu_seconds);
  if (side.ahead) json.member("ahead", *side.ahead);
  json.key("turns").begin_array();
  for (const ReduceSample& turn : side.turns) json.value(turn.seconds);
  json.end_array().end_object();
}

// Members are processes of loopback.
bool is_bare(const AllReduceBenchSpec& spec) {
  return spec.lines.empty() && spec.far == nullptr;
}

// Those who reduce, in turns.
class AllReduceTurns {
 public:
  static Result<AllReduceTurns> begin(const AllReduceBenchSpec& spec, const MemberGroupSpec& of) {
    AllReduceTurns turns;
    for (const std::string& way : spec.ways) {
      auto group = MemberGroup::own(of, spec.codec, way);
      if (group)
        turns.own_.push_back({std::move(*group), {.name = way}});
      else if (group.error().code == ErrorCode::kNotFound)
        turns.left_out_.emplace_back(way, group.error().what);
      else
        return std::unexpected(std::move(group).error());
    }
    if (is_bare(spec)) {
      auto sockets = MemberGroup::sockets(of);
      if (!sockets) return std::unexpected(std::move(sockets).error());
      turns.sockets_.emplace(Side{std::move(*sockets), {.name = "sockets"}});
    }
    if (spec.gloo_python.empty()) return turns;
    auto gloo = MemberGroup::gloo(of, spec.gloo_python);
    if (!gloo) return std::unexpected(std::move(gloo).error());
    turns.gloo_.emplace(Side{std::move(*gloo), {.name = "gloo"}});
    return turns;
  }

  Result<void> run(std::uint32_t rounds) {
    for (Side& side : own_) SWARMLINE_TRY(run(side, rounds));
    if (sockets_) SWARMLINE_TRY(run(*sockets_, rounds));
    return gloo_ ? run(*gloo_, rounds) : Result<void>();
  }
  // What a round took in the last turn, of all ways.
  double slowest_round() const {
    double slowest = 0;
    for (const Side& side : own_) slowest = std::max(slowest, side.result.turns.back().seconds);
    return slowest;
  }
  // The first turn brings everything in.
  void forget() {
    for (Side& side : own_) side.result.turns.clear();
    for (auto* const other : {&gloo_, &sockets_})
      if (*other) (*other)->result.turns.clear();
  }

  void write_to(AllReduceRow& row) {
    for (Side& side : own_) {
      take_medians(side.result);
      if (gloo_) side.result.ahead = ahead(side.result, gloo_->result);
      row.wire_bytes = side.result.turns.back().wire_bytes;
      row.own.push_back(std::move(side.result));
    }
    row.left_out = std::move(left_out_);
    for (auto [side, result] : {std::pair(&gloo_, &row.gloo), std::pair(&sockets_, &row.sockets)}) {
      if (!*side) continue;
      take_medians((*side)->result);
      *result = std::move((*side)->result);
    }
  }

 private:
  struct Side {
    MemberGroup group;
    AllReduceSide result;
  };

  static Result<void> run(Side& side, std::uint32_t rounds) {
    const auto sample = side.group.run(rounds);
    if (!sample) return std::unexpected(sample.error());
    side.result.turns.push_back(*sample);
    return {};
  }
  static double ahead(const AllReduceSide& ours, const AllReduceSide& gloo) {
    std::vector<double> ratios;
    for (std::size_t turn = 0; turn < ours.turns.size(); ++turn)
      ratios.push_back(gloo.turns[turn].seconds / ours.turns[turn].seconds);
    return median(ratios);
  }

  std::vector<Side> own_;
  std::optional<Side> gloo_, sockets_;
  std::vector<std::pair<std::string, std::string>> left_out_;
};

// The program's value: what the busiest line takes for the bytes that went, cut in the best way.
double optimum_of(const std::vector<double>& lines, std::uint64_t wire_bytes) {
  const auto weights = water_filling(lines);
  if (!weights) return 0;
  const double vectors = 2 * static_cast<double>(lines.size()) - 2;  // that went, in all
  const double bits = static_cast<double>(wire_bytes) / vectors * 8;
  return bits * reduce_cost(lines, *weights) / 1e6;
}

std::uint32_t rounds_in_turn(double seconds) {
  return static_cast<std::uint32_t>(
      std::clamp(kLineTurnSeconds / seconds, 1.0, double{kRoundsATurnMax}));
}

// Of a turn. Lines are slow: so many as take kLineTurnSeconds uncompressed. What links between
// machines give, the first turn says.
std::uint32_t rounds_of(const AllReduceBenchSpec& spec, const MemberGroupSpec& of) {
  if (spec.far != nullptr) return 1;
  if (spec.lines.empty())
    return static_cast<std::uint32_t>(
        std::clamp<std::uint64_t>(kMibATurn * kMiB / of.bytes, 1, kRoundsATurnMax));
  return rounds_in_turn(optimum_of(spec.lines, (2 * of.members - 2) * of.bytes));
}

std::string cell(const AllReduceSide& side) {
  return fmt::format("{:.2f} ({:.2f}){}", side.seconds * kMs, side.cpu_seconds * kMs,
                     side.ahead ? fmt::format(" {:.2f}x", *side.ahead) : "");
}

}  // namespace

Result<AllReduceRow> measure_allreduce(const AllReduceBenchSpec& spec, std::uint64_t mib,
                                       std::uint32_t members) {
  std::unique_ptr<EmulatedLines> lines;
  if (!spec.lines.empty() && spec.far == nullptr) {
    auto made = EmulatedLines::make(spec.lines);
    if (!made) return std::unexpected(std::move(made).error());
    lines = std::move(*made);
  }
  const MemberGroupSpec of{.members = members,
                           .bytes = mib * kMiB,
                           .lines = lines.get(),
                           .mbit_per_second = spec.lines,
                           .far = spec.far};
  auto sides = AllReduceTurns::begin(spec, of);
  if (!sides) return std::unexpected(std::move(sides).error());
  const BusyProcesses busy(spec.busy);
  const AsioRuntime clock;
  std::uint32_t rounds = rounds_of(spec, of);
  AllReduceRow row{.mib = mib, .members = members};
  const Buffer from = Buffer::zeroed(of.bytes);
  Buffer to = Buffer::zeroed(of.bytes);
  std::vector<double> copies;
  for (int turn = 0; turn <= spec.turns; ++turn) {
    SWARMLINE_TRY(sides->run(rounds));
    copies.push_back(copy_once(clock, from, to));
    if (turn > 0) continue;
    if (spec.far != nullptr) rounds = rounds_in_turn(sides->slowest_round());
    sides->forget();
    copies.clear();
  }
  row.copy_seconds = median(copies);
  sides->write_to(row);
  if (!spec.lines.empty()) row.optimum_seconds = optimum_of(spec.lines, row.wire_bytes);
  return row;
}

std::string allreduce_head(const AllReduceBenchSpec& spec) {
  std::string head = fmt::format(
      "A round of {}{} between {}{}: milliseconds, of CPU a member in brackets{}\n{:>5} {:>8}",
      to_string(spec.codec), spec.codec.checksums ? "" : " without checksums",
      spec.far == nullptr ? "processes of this machine" : "machines",
      spec.busy > 0
          ? fmt::format(", beside {} busy process{}", spec.busy, spec.busy > 1 ? "es" : "")
          : "",
      spec.far == nullptr ? "; times as fast as gloo" : "", "MiB", "members");
  if (!spec.lines.empty())
    head.insert(head.find(':'),
                fmt::format(", behind lines of {} Mbit/s", fmt::join(spec.lines, ", ")));
  for (const std::string& way : spec.ways) head += fmt::format("  {:>22}", "ours, " + way);
  if (spec.far == nullptr) head += fmt::format("  {:>17}", "gloo");
  if (is_bare(spec)) head += fmt::format("  {:>17}", "plain sockets");
  head += fmt::format("  {:>8}  {:>8}", "memcpy", "wire");
  return spec.lines.empty() ? head : head + fmt::format("  {:>9}", "optimum");
}

std::string allreduce_line(const AllReduceBenchSpec& spec, const AllReduceRow& row) {
  std::string line = fmt::format("{:>5} {:>8}", row.mib, row.members);
  for (const std::string& way : spec.ways) {
    const auto side = std::ranges::find(row.own, way, &AllReduceSide::name);
    line += fmt::format("  {:>22}", side == row.own.end() ? "-" : cell(*side));
  }
  const double moved = static_cast<double>(row.mib * kMiB * row.members);
  if (spec.far == nullptr) line += fmt::format("  {:>17}", row.gloo ? cell(*row.gloo) : "-");
  if (row.sockets) line += fmt::format("  {:>17}", cell(*row.sockets));
  line += fmt::format("  {:>8.2f}  {:>7.2f}x", row.copy_seconds * kMs,
                      static_cast<double>(row.wire_bytes) / moved);
  return spec.lines.empty() ? line : line + fmt::format("  {:>9.2f}", row.optimum_seconds * kMs);
}

std::string to_json(const AllReduceReport& report) {
  JsonWriter json(1);
  json.begin_object().member("format", kAllReduceBenchFormat).member("kind", "allreduce");
  json.member("wall_seconds", report.wall_seconds).member("machine", report.machine);
  json.member("cores", report.cores).member("codec", to_string(report.spec.codec));
  json.member("checksums", report.spec.codec.checksums);
  json.member("busy", report.spec.busy);
  if (!report.hosts.empty()) {
    json.key("hosts").begin_array();
    for (const std::string& host : report.hosts) json.value(host);
    json.end_array();
  }
  if (!report.spec.lines.empty()) {
    json.key("lines").begin_array();
    for (const double line : report.spec.lines) json.value(line);
    json.end_array();
  }
  json.key("rows").begin_array();
  for (const AllReduceRow& row : report.rows) {
    json.begin_object().member("mib", row.mib).member("members", row.members);
    json.key("own").begin_array();
    for (const AllReduceSide& side : row.own) {
      json.begin_object().member("way", side.name);
      write_side(json, side);
    }
    json.end_array();
    if (row.gloo) {
      json.key("gloo").begin_object();
      write_side(json, *row.gloo);
    }
    if (row.sockets) {
      json.key("sockets").begin_object();
      write_side(json, *row.sockets);
    }
    json.member("copy_seconds", row.copy_seconds).member("wire_bytes", row.wire_bytes);
    if (row.optimum_seconds > 0) json.member("optimum_seconds", row.optimum_seconds);
    json.key("left_out").begin_object();
    for (const auto& [way, why] : row.left_out) json.member(way, why);
    json.end_object().end_object();
  }
  json.end_array().end_object();
  return json.take() + "\n";
}

}  // namespace swarmline
