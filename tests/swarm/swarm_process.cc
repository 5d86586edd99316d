#include "tests/swarm/swarm_process.h"

#include <csignal>
#include <cstdlib>
#include <sstream>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include <gtest/gtest.h>

#include "engine/checkpoint/checkpoint_diff.h"
#include "engine/checkpoint/checkpoint_folder.h"
#include "node/admin_client.h"
#include "tests/harness/process_files.h"

namespace swarmline {
namespace {

namespace fs = std::filesystem;

// Words drawn from a small set: text that a model learns something about in a few steps.
std::string some_text() {
  static constexpr const char* kWords[] = {"the ", "swarm ", "peer ", "stage ",
                                           "of ",  "a ",     "line ", "token\n"};
  std::string text;
  std::uint32_t state = 1;
  while (text.size() < 40'000) {
    state = state * 1664525 + 1013904223;
    text += kWords[state >> 29];
  }
  return text;
}

constexpr const char* kConfig = R"(config_version = 1
[run]
name = "small"
steps = 6
[model]
layers = 4
d_model = 32
heads = 2
[batch]
batch = 8
microbatch = 2
sequence = 32
[optimizer]
lr = 3e-3
[pipeline]
stages = 2
[codec]
forward = "none"
backward = "none"
[eval]
sequences_max = 8
)";

}  // namespace

Program::Program(const TempFolder& folder, const std::string& name,
                 std::vector<std::string> arguments)
    : Program(folder, name, SWARMLINE_BINARY_DIR "/swarmline", std::move(arguments)) {}

Program::Program(const TempFolder& folder, const std::string& name, const std::string& program,
                 std::vector<std::string> arguments)
    : name_(name), output_file_(folder.at(name + ".out")) {
  auto started = ChildProcess::start(
      {.program = program, .arguments = std::move(arguments), .output_file = output_file_});
  if (!started) {
    ADD_FAILURE() << started.error().what;
    std::abort();
  }
  process_.emplace(std::move(*started));
}

int Program::wait(double seconds_max) {
  if (comes_true([this] { return !running(); }, seconds_max)) return *process_->poll();
  ADD_FAILURE() << name_ << " did not end within " << seconds_max << " s; it wrote:\n" << output();
  process_->kill_and_wait();
  return -1;
}

std::string Program::output() const {
  return slurp(output_file_);
}

bool Program::wait_for_output(const std::string& text, double seconds_max) {
  const auto written = [&] { return output().find(text) != std::string::npos; };
  if (comes_true([&] { return written() || !running(); }, seconds_max) && written()) return true;
  ADD_FAILURE() << name_ << " did not write \"" << text << "\" but:\n" << output();
  return false;
}

Ended run_program(const TempFolder& folder, const std::string& name,
                  std::vector<std::string> arguments) {
  Program program(folder, name, std::move(arguments));
  const int code = program.wait();
  return {code, program.output()};
}

SwarmFolder::SwarmFolder(std::vector<std::string> overrides)
    : run_(temp_.at("runs/small")), overrides_(std::move(overrides)) {
  temp_.write("config.toml", kConfig);
  overrides_.insert(overrides_.begin(), {"data.files=\"" + temp_.write("text", some_text()) + "\"",
                                         "run.dir=\"" + temp_.at("runs") + "\""});
}

std::vector<std::string> SwarmFolder::arguments(const std::string& command,
                                                std::vector<std::string> more) const {
  std::vector<std::string> all{command, temp_.at("config.toml")};
  for (const std::string& change : overrides_) all.insert(all.end(), {"--set", change});
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

Program SwarmFolder::start(const std::string& command, std::vector<std::string> more) const {
  return Program(temp_, command, arguments(command, std::move(more)));
}

std::vector<std::string> SwarmFolder::without_restarts(std::vector<std::string> arguments) {
  arguments.insert(arguments.end(), {"--restarts", "0"});
  return arguments;
}

std::vector<std::string> SwarmFolder::emulating(int forward_ms, int backward_ms) const {
  const std::string speeds = "forward_ms = " + std::to_string(forward_ms) +
                             ", backward_ms = " + std::to_string(backward_ms);
  return {"--peer-config",
          temp_.write("peer.toml", "config_version = 1\n[peer]\nemulate = { " + speeds + " }\n")};
}

Ended SwarmFolder::launch(std::vector<std::string> more) const {
  Program program = start("launch", std::move(more));
  const int code = program.wait(2 * kPatienceSeconds);
  return {code, program.output()};
}

std::optional<RunStatus> SwarmFolder::status() const {
  std::optional<std::string> json = run_.final_status();
  if (!json) {
    const auto address = run_.read_address();
    if (!address) return std::nullopt;
    auto guard = run_.owner_guard();
    auto answer = ask_status(*address, guard ? *guard : nullptr);
    if (answer) json = std::move(*answer);
    if (!json) json = run_.final_status();  // it ended meanwhile
  }
  if (!json) return std::nullopt;
  auto status = parse_status(*json);
  if (!status) {
    ADD_FAILURE() << status.error().what << "\n" << *json;
    return std::nullopt;
  }
  return std::move(*status);
}

std::optional<RunStatus> SwarmFolder::wait_until(const std::function<bool(const RunStatus&)>& holds,
                                                 double seconds_max) const {
  std::optional<RunStatus> last;
  const bool held = comes_true(
      [&] {
        last = status();
        return last && (holds(*last) || last->over());
      },
      seconds_max);
  if (held && holds(*last)) return last;
  ADD_FAILURE() << "the run is " << (last ? last->state + ": " + last->sentence : "not there")
                << "\n"
                << logs();
  return std::nullopt;
}

std::optional<RunStatus> SwarmFolder::wait_for_step(std::uint64_t step) const {
  return wait_until([step](const RunStatus& status) { return status.step >= step; });
}

std::vector<JsonValue> SwarmFolder::log(const std::string& kind) const {
  std::vector<JsonValue> lines;
  std::istringstream in(slurp(run_.log()));
  for (std::string line; std::getline(in, line);) {
    auto value = parse_json(line);
    if (!value) {
      ADD_FAILURE() << value.error().what << ": " << line;
    } else if ((*value)["kind"].string == kind) {
      lines.push_back(std::move(*value));
    }
  }
  return lines;
}

std::string SwarmFolder::logs() const {
  std::string text;
  std::error_code error;
  for (const auto& file : fs::directory_iterator(run_.logs(), error)) {
    text += "---- " + file.path().filename().string() + "\n" + slurp(file.path().string());
  }
  return text;
}

// Key biases have no true gradient: Adam makes steps of the noise of their sums.
namespace {

void expect_reference_with(const SwarmFolder& swarm, std::vector<std::string> more,
                           double difference_max) {
  more.emplace_back("--reference");
  const Ended reference = swarm.launch(std::move(more));
  ASSERT_EQ(reference.code, 0) << reference.output;
  const auto diff = diff_checkpoints(swarm.run().path(), swarm.run().path() + "-reference");
  ASSERT_TRUE(diff) << diff.error().what;
  EXPECT_TRUE(diff->same_tensors());
  EXPECT_TRUE(diff->state_in_a);
  EXPECT_FALSE(diff->tensors.empty());
  for (const TensorDiff& tensor : diff->tensors)
    if (!tensor.name.ends_with("attention.k.bias"))
      EXPECT_LT(tensor.max_rel_to_peak, difference_max) << tensor.name;
}

}  // namespace

void expect_reference(const SwarmFolder& swarm, double difference_max,
                      std::vector<std::string> more) {
  expect_reference_with(swarm, std::move(more), difference_max);
}

void expect_reference_as_far_as_it_got(const SwarmFolder& swarm) {
  const auto newest = latest_checkpoint(swarm.run().checkpoints());
  ASSERT_TRUE(newest && *newest) << "it has no checkpoint";
  expect_reference_with(swarm, {"--set", "run.steps=" + std::to_string((*newest)->step)},
                        kReferenceDifferenceMax);
}

namespace {

struct ProcessLine {
  pid_t pid = 0;
  pid_t parent = 0;
  char state = '?';
};

std::vector<ProcessLine> all_processes() {
  std::vector<ProcessLine> processes;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string stat = process_file(name, "stat");
    const std::size_t after_name = stat.rfind(')');  // the name itself may hold anything
    if (after_name == std::string::npos) continue;
    ProcessLine line;
    line.pid = static_cast<pid_t>(std::stol(name));
    std::istringstream(stat.substr(after_name + 1)) >> line.state >> line.parent;
    processes.push_back(line);
  }
  return processes;
}

}  // namespace

std::vector<pid_t> descendants(pid_t ancestor) {
  const std::vector<ProcessLine> processes = all_processes();
  std::vector<pid_t> found{ancestor};
  for (std::size_t i = 0; i < found.size(); ++i) {
    for (const ProcessLine& line : processes) {
      if (line.parent == found[i] && line.state != 'Z') found.push_back(line.pid);
    }
  }
  found.erase(found.begin());
  return found;
}

std::string command_line(pid_t pid) {
  std::string words = process_file(pid, "cmdline");
  for (char& c : words) c = c == '\0' ? ' ' : c;
  return words;
}

pid_t process_with(pid_t launch, const std::string& text) {
  for (const pid_t pid : descendants(launch)) {
    if (command_line(pid).find(text) != std::string::npos) return pid;
  }
  ADD_FAILURE() << "no process below " << launch << " has \"" << text << "\" in its command line";
  return 0;
}

void adopt_orphans() {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
}

void expect_nothing_left(double seconds_max) {
  const bool gone = comes_true(
      [] {
        while (::waitpid(-1, nullptr, WNOHANG) > 0) {
        }
        return descendants(::getpid()).empty();
      },
      seconds_max);
  if (gone) return;
  for (const pid_t pid : descendants(::getpid())) {
    ADD_FAILURE() << "left behind: " << command_line(pid);
    ::kill(pid, SIGKILL);
  }
}

}  // namespace swarmline
