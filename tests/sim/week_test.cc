// What a swarm outlasts for a week: each bit of it, what it may keep of what was, and how much.
#include <algorithm>
#include <cstdio>
#include <malloc.h>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/log.h"
#include "tests/sim/long_swarm.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

// A size that does not grow differs from day to day, by what happens on them.
constexpr double kGrowthMax = 1.5;
constexpr double kGrowthFree = 32;
// Of this process; the simulator keeps the journal, some kilobytes of each node that ever was, and
// what the faults were.
constexpr double kHeapGrowthMax = 1.5;
// What grows with all processes that ever were.
const std::set<std::string_view> kGrowsWithARunsLife = {
    "coordinator.members",  // until as many are kept of those that went last as are ever kept
    "coordinator.status_bytes", "journal.writes", "peer.fences"};
// What waits while a coordinator that was begun again collects: its bound is its own, and whether
// that happens in a window is chance.
const std::set<std::string_view> kComesAndGoes = {"coordinator.held_messages"};

constexpr double kBefore = 900;  // seconds; faults so long before a finding may have to do with it

std::uint64_t heap_bytes() {
  return mallinfo2().uordblks;
}

class Week : public testing::Test {
 protected:
  void SetUp() override { init_log({.level = LogLevel::kError, .file = {}, .prefix = {}}); }
  // What it saw, for people.
  static std::string tail_of(const SeedOutcome& outcome) {
    std::string text;
    const auto tail = [&](const char* what, const std::vector<std::string>& lines) {
      for (std::size_t i = lines.size() - std::min<std::size_t>(lines.size(), 60); i < lines.size();
           ++i)
        text += fmt::format("  {} {}\n", what, lines[i]);
    };
    tail("fault", outcome.history);
    tail("event", outcome.events);
    for (const OracleFinding& finding : outcome.findings) {
      const double when = to_seconds(finding.when);
      text += fmt::format("  oracle {}: {:.6f} s: {}, after\n", to_string(finding.rule), when,
                          finding.what);
      for (const std::string& fault : outcome.history)
        if (const double began = std::stod(fault); began <= when && began > when - kBefore)
          text += "    " + fault + "\n";
    }
    return text;
  }
  // What was largest in the last window is not much larger than in the second: by then all that a
  // swarm of so many peers needs is there.
  static void expect_no_growth(const SeedOutcome& outcome) {
    ASSERT_GE(outcome.windows.size(), 3U);
    const auto& early = outcome.windows[1];
    const auto& late = outcome.windows.back();
    for (const auto& [name, size] : late) {
      const std::uint64_t before = early.contains(name) ? early.at(name) : 0;
      fmt::print("  {:<32} {:>8} then {:>8}\n", name, before, size);
      if (kGrowsWithARunsLife.contains(name) || kComesAndGoes.contains(name)) continue;
      EXPECT_LE(static_cast<double>(size), kGrowthMax * static_cast<double>(before) + kGrowthFree)
          << name;
    }
  }
  static void say(const SeedOutcome& outcome) {
    std::uint64_t faults = 0;
    std::string kinds;
    for (const auto& [kind, count] : outcome.faults) {
      faults += count;
      kinds += fmt::format(" {} {}", count, to_string(kind));
    }
    fmt::print("{:.1f} virtual hours, {} steps, {} events, {} processes, {} faults:{}\n",
               outcome.virtual_seconds / 3600, outcome.committed, outcome.steps, outcome.peers,
               faults, kinds);
    fmt::print("{} records in the journal\n", outcome.journal_records);
  }
};

// The same twice: what is looked at only now and then is still a function of the seed.
TEST_F(Week, AFewHoursAreTheSameTwice) {
  const SeedOutcome outcome = run_scenario(
      long_scenario({.stages = 4, .peers_of_stage = 6, .lasts = 8h, .window = 1h, .seed = 3}));
  say(outcome);
  EXPECT_EQ(outcome.violation, "") << tail_of(outcome);
  EXPECT_GT(outcome.committed, 40U);
}

TEST_F(Week, OfTwoHundredPeersUnderSteadyFaults) {
  SeedScenario scenario = long_scenario({});
  std::vector<std::uint64_t> heap;
  scenario.longer.on_window = [&](const SeedOutcome& so_far) {
    heap.push_back(heap_bytes());
    fmt::print("day {}: {} MiB, {} steps, {} processes, {} events\n", heap.size(),
               heap.back() >> 20, so_far.committed, so_far.peers, so_far.steps);
    for (const char* name : {"coordinator.members", "coordinator.fences", "journal.writes"})
      fmt::print("   {} {}", name, so_far.windows.back().at(name));
    fmt::print("\n");
    std::fflush(stdout);
  };
  const SeedOutcome outcome = run_scenario_once(scenario);
  say(outcome);
  EXPECT_EQ(outcome.violation, "") << tail_of(outcome);
  EXPECT_GE(outcome.virtual_seconds, 7 * 86400.0);
  expect_no_growth(outcome);
  ASSERT_GE(heap.size(), 7U);
  EXPECT_LE(static_cast<double>(heap.back()), kHeapGrowthMax * static_cast<double>(heap[1]));
  for (const FaultRate& rate : scenario.faults.rates)
    EXPECT_GE(outcome.faults.contains(rate.kind) ? outcome.faults.at(rate.kind) : 0, 5U)
        << to_string(rate.kind);
}

}  // namespace
}  // namespace swarmline
