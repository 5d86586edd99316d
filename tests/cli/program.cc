#include "tests/cli/program.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <signal.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <gtest/gtest.h>

#include "tests/harness/process_files.h"

namespace swarmline {
namespace {

namespace fs = std::filesystem;

constexpr auto kProgramWait = std::chrono::minutes(2);
constexpr auto kLook = std::chrono::milliseconds(20);

// Of the program that is waited for, and of those that run meanwhile in the same folder: each has
// files of its own for what it prints.
int g_running = 0;

std::string output_name(const char* stream) {
  return stream + (g_running > 1 ? "-" + std::to_string(g_running) : std::string()) + ".txt";
}

pid_t spawn(const std::string& folder, const std::vector<std::string>& arguments) {
  std::vector<char*> argv{const_cast<char*>(SWARMLINE_PROGRAM)};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const std::string out = folder + "/" + output_name("stdout");
  const std::string err = folder + "/" + output_name("stderr");
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  if (::chdir(folder.c_str()) != 0) ::_exit(126);
  ::dup2(::open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644), STDOUT_FILENO);
  ::dup2(::open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644), STDERR_FILENO);
  ::execv(argv[0], argv.data());
  ::_exit(127);
}

}  // namespace

ScratchFolder::ScratchFolder() : path_(fs::canonical(temp_.path())) {}

void ScratchFolder::write(const std::string& name, const std::string& text) const {
  temp_.write(name, text);
}

std::string ScratchFolder::read(const std::string& name) const {
  return slurp(path_ + "/" + name);
}

bool ScratchFolder::has(const std::string& name) const {
  return fs::exists(path_ + "/" + name);
}

void ScratchFolder::write_small_run() const {
  std::string text;
  for (int i = 0; i < 4000; ++i)
    text += "word" + std::to_string(i * 7919 % 97) + (i % 9 ? " " : "\n");
  write("text.txt", text);
  write("run.toml", R"(config_version = 1
[run]
name = "small"
steps = 6
[model]
layers = 4
d_model = 16
heads = 2
dtype = "fp64"
[data]
files = ["text.txt"]
held_out = 0.05
[batch]
batch = 8
microbatch = 2
sequence = 16
[pipeline]
stages = 2
peers = 2
[codec]
forward = "none"
backward = "none"
[eval]
sequences_max = 4
)");
}

Ran ScratchFolder::run(const std::vector<std::string>& arguments) const {
  return run_and(arguments, [] { return false; }, [](pid_t) {});
}

Ran ScratchFolder::run_and(const std::vector<std::string>& arguments,
                           const std::function<bool()>& until,
                           const std::function<void(pid_t)>& meanwhile) const {
  ++g_running;
  const pid_t pid = spawn(path_, arguments);
  const auto deadline = std::chrono::steady_clock::now() + kProgramWait;
  bool done = false;
  int status = 0;
  while (::waitpid(pid, &status, WNOHANG) != pid) {
    if (!done && until()) {
      done = true;
      meanwhile(pid);
    }
    if (std::chrono::steady_clock::now() > deadline) ::kill(pid, SIGKILL);
    std::this_thread::sleep_for(kLook);
  }
  Ran ran{.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
          .out = read(output_name("stdout")),
          .err = read(output_name("stderr"))};
  --g_running;
  return ran;
}

std::vector<pid_t> ScratchFolder::processes(const std::string& text) const {
  std::vector<pid_t> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (!std::ranges::all_of(name, [](char c) { return c >= '0' && c <= '9'; })) continue;
    std::error_code gone;
    if (fs::read_symlink(entry.path() / "cwd", gone) != fs::path(path_) || gone) continue;
    std::string command = process_file(entry.path().filename().string(), "cmdline");
    std::ranges::replace(command, '\0', ' ');
    if (command.find(text) != command.npos) found.push_back(static_cast<pid_t>(std::stol(name)));
  }
  return found;
}

}  // namespace swarmline
