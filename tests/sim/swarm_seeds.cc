// Runs seeds of sim/seeds, each in a process of its own, so that a broken CHECK costs one seed.
// Ends with 0 when no seed failed, else with 1 and a line for each that did.
#include <atomic>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "engine/base/log.h"
#include "pipeline/protocol/message_kinds.h"
#include "sim/seeds/swarm_seed.h"

namespace swarmline {
namespace {

constexpr unsigned kSeedSecondsMax = 120;  // of real time; then it counts as hanging

struct Flags {
  std::uint64_t first = 1;
  std::uint64_t count = 0;
  std::uint32_t jobs = 1;
  std::string regressions;
  bool verbose = false;
  bool frames = false;
};

// Written by the children.
struct Totals {
  std::atomic<std::uint64_t> events{0};
  std::atomic<std::uint64_t> virtual_ms{0};
  std::atomic<std::uint64_t> faults[kFaultKinds.size()]{};
};

std::vector<std::uint64_t> seeds_of(const Flags& flags) {
  std::vector<std::uint64_t> seeds;
  std::ifstream file(flags.regressions);
  for (std::string line; std::getline(file, line);) {
    std::uint64_t seed = 0;
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), seed);
    if (error == std::errc()) seeds.push_back(seed);
  }
  for (std::uint64_t i = 0; i < flags.count; ++i) seeds.push_back(flags.first + i);
  return seeds;
}

void print_frame(Duration time, SimNodeId from, SimNodeId to, const Frame& frame) {
  if (kind_of(frame) == MessageKind::kHeartbeat || kind_of(frame) == MessageKind::kHeartbeatAck)
    return;
  fmt::print("{:.6f} {} -> {} {} {} bytes\n", to_seconds(time), from, to, to_string(kind_of(frame)),
             frame.wire_bytes());
}

int run_child(std::uint64_t seed, const Flags& flags, Totals& totals) {
  alarm(kSeedSecondsMax);
  const SeedOutcome outcome = run_seed(seed, flags.frames ? print_frame : SeedTap());
  const bool verbose = flags.verbose || flags.frames;
  totals.events += outcome.steps;
  totals.virtual_ms += static_cast<std::uint64_t>(outcome.virtual_seconds * 1e3);
  for (std::size_t i = 0; i < kFaultKinds.size(); ++i)
    if (const auto found = outcome.faults.find(kFaultKinds[i].kind); found != outcome.faults.end())
      totals.faults[i] += found->second;
  std::string text;
  if (!outcome.violation.empty() || verbose)
    text = fmt::format("seed {}: {}\n  {}\n", seed,
                       outcome.violation.empty() ? "well" : outcome.violation, outcome.summary);
  if (verbose) {
    for (const std::string& line : outcome.history) text += "  fault " + line + "\n";
    for (const std::string& line : outcome.events) text += "  event " + line + "\n";
    text += fmt::format("  trace {:016x}, {:.3f} virtual seconds, {} events\n", outcome.trace_hash,
                        outcome.virtual_seconds, outcome.steps);
  }
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
  return outcome.violation.empty() ? 0 : 1;
}

class Pool {
 public:
  explicit Pool(std::uint32_t jobs) : jobs_(jobs) {}

  void start(std::uint64_t seed, const auto& body) {
    while (running_.size() >= jobs_) wait_one();
    std::fflush(stdout);
    const pid_t child = fork();
    if (child < 0) throw std::runtime_error("this machine starts no more processes");
    if (child == 0) _exit(body());
    running_.emplace(child, seed);
  }
  void wait_all() {
    while (!running_.empty()) wait_one();
  }
  const std::vector<std::uint64_t>& failed() const { return failed_; }
  std::uint64_t done() const { return done_; }

 private:
  void wait_one() {
    int status = 0;
    const pid_t child = waitpid(-1, &status, 0);
    const auto seed = running_.extract(child);
    if (seed.empty()) return;
    ++done_;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
    failed_.push_back(seed.mapped());
    if (WIFSIGNALED(status))
      fmt::print("seed {}: {}\n", seed.mapped(),
                 WTERMSIG(status) == SIGALRM   ? "does not end"
                 : WTERMSIG(status) == SIGABRT ? "a CHECK, above, is broken"
                                               : strsignal(WTERMSIG(status)));
  }

  std::uint32_t jobs_;
  std::map<pid_t, std::uint64_t> running_;
  std::vector<std::uint64_t> failed_;
  std::uint64_t done_ = 0;
};

int run(const Flags& flags) {
  init_log({.level = LogLevel::kError, .file = {}, .prefix = {}});
  void* shared =
      mmap(nullptr, sizeof(Totals), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) throw std::runtime_error("no memory");
  auto& totals = *new (shared) Totals;
  const std::vector<std::uint64_t> seeds = seeds_of(flags);
  if (seeds.empty()) {
    fmt::print(stderr, "swarm_seeds: no seeds; expected --count N or --regressions FILE\n");
    return 2;
  }
  const bool terminal = isatty(STDERR_FILENO) != 0;
  Pool pool(flags.jobs);
  for (const std::uint64_t seed : seeds) {
    pool.start(seed, [&] { return run_child(seed, flags, totals); });
    if (terminal)
      fmt::print(stderr, "\r{} of {} seeds, {} failed ", pool.done(), seeds.size(),
                 pool.failed().size());
  }
  pool.wait_all();
  if (terminal) fmt::print(stderr, "\r\x1b[K");
  std::string faults;
  for (std::size_t i = 0; i < kFaultKinds.size(); ++i)
    faults += fmt::format(" {} {}", totals.faults[i].load(), kFaultKinds[i].name);
  fmt::print("{} seeds, {} failed; {} events, {:.0f} virtual seconds; faults:{}\n", seeds.size(),
             pool.failed().size(), totals.events.load(),
             static_cast<double>(totals.virtual_ms.load()) / 1e3, faults);
  std::string failed;
  for (const std::uint64_t seed : pool.failed()) failed += fmt::format(" {}", seed);
  if (!failed.empty()) fmt::print("failed:{}\n", failed);
  return failed.empty() ? 0 : 1;
}

}  // namespace
}  // namespace swarmline

int main(int argc, char** argv) {
  swarmline::Flags flags;
  CLI::App app("Swarms with random faults, from seeds, in virtual time");
  app.add_option("--first", flags.first, "The first seed")->capture_default_str();
  app.add_option("--count", flags.count, "How many seeds")->capture_default_str();
  app.add_option("--jobs", flags.jobs, "At a time")
      ->check(CLI::Range(1U, 1024U))
      ->capture_default_str();
  app.add_option("--regressions", flags.regressions, "A file whose lines begin with a seed each")
      ->check(CLI::ExistingFile);
  app.add_flag("--verbose", flags.verbose, "Say what happened in each");
  app.add_flag("--frames", flags.frames, "Print every frame delivered, but heartbeats");
  CLI11_PARSE(app, argc, argv);
  return swarmline::run(flags);
}
