// Runs seeds of sim/seeds, each in a process of its own, so that a broken CHECK costs one seed.
// Ends with 0 when no seed failed, else with 1 and a line for each that did.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <new>
#include <optional>
#include <sstream>
#include <string>
#include <sys/mman.h>
#include <sys/wait.h>
#include <tuple>
#include <unistd.h>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/log.h"
#include "base/marks.h"
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
  std::string pins;
  bool pin = false;  // write them anew
  std::string with;  // "stall,isolate,times,era", or "all"
  bool marks = false;
  bool verbose = false;
  bool frames = false;
};

// Written by the children.
struct Totals {
  std::atomic<std::uint64_t> events{0};
  std::atomic<std::uint64_t> virtual_ms{0};
  std::atomic<std::uint64_t> faults[kFaultKinds.size()]{};
};

// Of a mark, over all seeds; written by the children.
struct MarkTotals {
  std::atomic<std::uint64_t> hits{0};
  std::atomic<std::uint64_t> seeds{0};  // that hit it
};

// Zeroes that the children share with their parent.
template <typename T>
class SharedArray {
 public:
  explicit SharedArray(std::size_t size) : bytes_(std::max<std::size_t>(size, 1) * sizeof(T)) {
    void* shared = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) throw std::runtime_error("no memory");
    first_ = static_cast<T*>(shared);
    for (std::size_t i = 0; i < size; ++i) new (first_ + i) T;
  }
  ~SharedArray() { munmap(first_, bytes_); }
  SharedArray(const SharedArray&) = delete;
  SharedArray& operator=(const SharedArray&) = delete;
  T& operator[](std::size_t at) { return first_[at]; }

 private:
  std::size_t bytes_;
  T* first_ = nullptr;
};

// What the children tell their parent.
struct Shared {
  explicit Shared(std::size_t seeds) : totals(1), marks(Mark::all().size()), hashes(seeds) {}
  SharedArray<Totals> totals;
  SharedArray<MarkTotals> marks;      // in the order of Mark::all()
  SharedArray<std::uint64_t> hashes;  // by seed, in the order given
};

// A seed, and what it draws besides: the usual (empty), or words of --with alone.
struct SeedJob {
  std::uint64_t seed = 0;
  std::string with;
  auto operator<=>(const SeedJob&) const = default;
};
std::string to_string(const SeedJob& job) {
  return fmt::format("{}{}{}", job.seed, job.with.empty() ? "" : " +", job.with);
}

// Trace hashes that seeds are pinned to: a change that says it changes no behaviour changes none.
using Pins = std::map<SeedJob, std::uint64_t>;

Pins read_pins(const std::string& path) {
  Pins pins;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    SeedJob job;
    std::string word;
    if (!(words >> job.seed >> word)) continue;
    if (word.starts_with('+')) {
      job.with = word.substr(1);
      words >> word;
    }
    pins[job] = std::stoull(word, nullptr, 16);
  }
  return pins;
}

void write_pins(const std::string& path, const Pins& pins) {
  std::ofstream file(path);
  file << "# seed, +what it draws besides, trace hash; swarm_seeds --pin writes this file anew\n";
  for (const auto& [job, hash] : pins) file << fmt::format("{} {:016x}\n", to_string(job), hash);
  if (!file.flush()) throw std::runtime_error(path + " can't be written");
}

// How many seeds left another trace than the one they are pinned to.
std::size_t count_changed(const Pins& pins, const Pins& found) {
  std::size_t changed = 0;
  for (const auto& [job, hash] : pins) {
    const auto now = found.find(job);
    if (now == found.end() || now->second == hash) continue;
    if (++changed <= 10)
      fmt::print("seed {}: trace {:016x}, pinned to {:016x}\n", to_string(job), now->second, hash);
  }
  if (changed > 0)
    fmt::print(
        "{} seeds left another trace than they are pinned to: what peers see has changed. If it "
        "should, pin them anew with --pin and say why in the commit.\n",
        changed);
  return changed;
}

// Empty: a word that is none of them.
std::optional<SeedExtras> extras_of(const std::string& with) {
  if (with.empty()) return usual_extras();
  SeedExtras extras;
  std::istringstream words(with);
  for (std::string word; std::getline(words, word, ',');) {
    if (word == "times") extras.control_times = true;
    if (word == "last") extras.hits_last = true;
    if (word == "thin") extras.thin_heartbeats = true;
    if (word == "keys") extras.keys = true;
    if (word == "pieces") extras.small_pieces = true;
    if (word == "islands") extras.islands = true;
    if (word == "times" || word == "last" || word == "thin" || word == "keys" || word == "pieces" ||
        word == "islands" || word == "plain")
      continue;
    const auto kind = fault_kind_from(word);
    if (!kind || !is_on_request(*kind)) return std::nullopt;
    if (std::ranges::find(extras.kinds, *kind) == extras.kinds.end()) extras.kinds.push_back(*kind);
  }
  return extras;
}

// Those that once failed draw what they drew then.
std::vector<SeedJob> jobs_of(const Flags& flags) {
  std::vector<SeedJob> jobs;
  std::ifstream file(flags.regressions);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    SeedJob job{.seed = 0, .with = "plain"};
    std::string word;
    if (!(words >> job.seed)) continue;
    if (words >> word && word.starts_with('+')) job.with = word.substr(1);
    jobs.push_back(std::move(job));
  }
  for (std::uint64_t i = 0; i < flags.count; ++i) jobs.push_back({flags.first + i, flags.with});
  return jobs;
}

void print_frame(Duration time, SimNodeId from, SimNodeId to, const Frame& frame) {
  if (kind_of(frame) == MessageKind::kHeartbeat || kind_of(frame) == MessageKind::kHeartbeatAck)
    return;
  fmt::print("{:.6f} {} -> {} {} {} bytes\n", to_seconds(time), from, to, to_string(kind_of(frame)),
             frame.wire_bytes());
}

void add_marks(SharedArray<MarkTotals>& shared) {
  const std::vector<const Mark*> marks = Mark::all();
  for (std::size_t i = 0; i < marks.size(); ++i) {
    if (marks[i]->hits() == 0) continue;
    shared[i].hits += marks[i]->hits();
    ++shared[i].seeds;
  }
}

int run_child(const SeedJob& job, const Flags& flags, Totals& totals, std::uint64_t& hash) {
  alarm(kSeedSecondsMax);
  const SeedOutcome outcome =
      run_seed(job.seed, *extras_of(job.with), flags.frames ? print_frame : SeedTap());
  const bool verbose = flags.verbose || flags.frames;
  hash = outcome.trace_hash;
  totals.events += outcome.steps;
  totals.virtual_ms += static_cast<std::uint64_t>(outcome.virtual_seconds * 1e3);
  for (std::size_t i = 0; i < kFaultKinds.size(); ++i)
    if (const auto found = outcome.faults.find(kFaultKinds[i].kind); found != outcome.faults.end())
      totals.faults[i] += found->second;
  std::string text;
  if (!outcome.violation.empty() || verbose)
    text = fmt::format("seed {}: {}\n  {}\n", to_string(job),
                       outcome.violation.empty() ? "well" : outcome.violation, outcome.summary);
  if (verbose) {
    for (const std::string& line : outcome.history) text += "  fault " + line + "\n";
    for (const std::string& line : outcome.events) text += "  event " + line + "\n";
    for (const OracleFinding& finding : outcome.findings)
      text += fmt::format("  oracle {}: {:.6f} s: {}\n", to_string(finding.rule),
                          to_seconds(finding.when), finding.what);
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

  void start(const SeedJob& job, const auto& body) {
    while (running_.size() >= jobs_) wait_one();
    std::fflush(stdout);
    const pid_t child = fork();
    if (child < 0) throw std::runtime_error("this machine starts no more processes");
    if (child == 0) _exit(body());
    running_.emplace(child, job);
  }
  void wait_all() {
    while (!running_.empty()) wait_one();
  }
  const std::vector<SeedJob>& failed() const { return failed_; }
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
      fmt::print("seed {}: {}\n", to_string(seed.mapped()),
                 WTERMSIG(status) == SIGALRM   ? "does not end"
                 : WTERMSIG(status) == SIGABRT ? "a CHECK, above, is broken"
                                               : strsignal(WTERMSIG(status)));
  }

  std::uint32_t jobs_;
  std::map<pid_t, SeedJob> running_;
  std::vector<SeedJob> failed_;
  std::uint64_t done_ = 0;
};

// Rarest last: what no seed hit is what no seed can have tested.
void print_marks(SharedArray<MarkTotals>& shared, std::size_t seeds) {
  struct Line {
    std::string_view name;
    std::uint64_t hits, seeds;
  };
  std::vector<Line> lines;
  for (const Mark* mark : Mark::all()) {
    const MarkTotals& total = shared[lines.size()];
    lines.push_back({mark->name(), total.hits, total.seeds});
  }
  std::ranges::sort(lines, [](const Line& a, const Line& b) {
    return std::tie(b.seeds, a.name) < std::tie(a.seeds, b.name);
  });
  fmt::print("marks, hits, share of the seeds that hit them:\n");
  std::string none;
  for (const Line& line : lines) {
    if (line.seeds == 0)
      none += fmt::format(" {}", line.name);
    else
      fmt::print("  {:<44} {:>10} {:>6.1f} %\n", line.name, line.hits,
                 100 * static_cast<double>(line.seeds) / static_cast<double>(seeds));
  }
  fmt::print("marks that no seed hit:{}\n", none.empty() ? " none" : none);
}

int run(const Flags& flags) {
  init_log({.level = LogLevel::kError, .file = {}, .prefix = {}});
  const std::vector<SeedJob> jobs = jobs_of(flags);
  if (jobs.empty()) {
    fmt::print(stderr, "swarm_seeds: no seeds; expected --count N or --regressions FILE\n");
    return 2;
  }
  const auto wrong =
      std::ranges::find_if(jobs, [](const SeedJob& job) { return !extras_of(job.with); });
  if (wrong != jobs.end()) {
    fmt::print(stderr,
               "swarm_seeds: --with {}: expected some of plain,times,last,thin,keys,pieces,islands",
               flags.with);
    for (const FaultKind kind : usual_extras().kinds) fmt::print(stderr, ",{}", to_string(kind));
    fmt::print(stderr, "\n");
    return 2;
  }
  const bool terminal = isatty(STDERR_FILENO) != 0;
  Shared shared(jobs.size());
  Pool pool(flags.jobs);
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    pool.start(jobs[i], [&] {
      const int status = run_child(jobs[i], flags, shared.totals[0], shared.hashes[i]);
      add_marks(shared.marks);
      return status;
    });
    if (terminal)
      fmt::print(stderr, "\r{} of {} seeds, {} failed ", pool.done(), jobs.size(),
                 pool.failed().size());
  }
  pool.wait_all();
  if (terminal) fmt::print(stderr, "\r\x1b[K");
  const Totals& totals = shared.totals[0];
  std::string faults;
  for (std::size_t i = 0; i < kFaultKinds.size(); ++i)
    faults += fmt::format(" {} {}", totals.faults[i].load(), kFaultKinds[i].name);
  fmt::print("{} seeds, {} failed; {} events, {:.0f} virtual seconds; faults:{}\n", jobs.size(),
             pool.failed().size(), totals.events.load(),
             static_cast<double>(totals.virtual_ms.load()) / 1e3, faults);
  std::string failed;
  for (const SeedJob& job : pool.failed()) failed += " " + to_string(job);
  if (flags.marks) print_marks(shared.marks, jobs.size());
  if (!failed.empty()) fmt::print("failed:{}\n", failed);
  if (flags.pins.empty()) return failed.empty() ? 0 : 1;
  Pins found;
  for (std::size_t i = 0; i < jobs.size(); ++i) found[jobs[i]] = shared.hashes[i];
  if (flags.pin) write_pins(flags.pins, found);
  return count_changed(read_pins(flags.pins), found) == 0 && failed.empty() ? 0 : 1;
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
  auto* pins =
      app.add_option("--pins", flags.pins, "Fail where a seed's trace is not the one here");
  app.add_flag("--pin", flags.pin, "Write that file anew")->needs(pins);
  app.add_option("--with", flags.with,
                 "These instead of all that seeds draw: kinds, times, last, thin, keys, pieces, "
                 "islands; plain: none");
  app.add_flag("--marks", flags.marks, "Say how often each coverage mark was hit");
  app.add_flag("--verbose", flags.verbose, "Say what happened in each");
  app.add_flag("--frames", flags.frames, "Print every frame delivered, but heartbeats");
  CLI11_PARSE(app, argc, argv);
  return swarmline::run(flags);
}
