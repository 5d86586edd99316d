#include "node/child_process.h"

#include <cerrno>
#include <chrono>
#include <climits>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

namespace swarmline {
namespace {

constexpr int kExecFailed = 127;

int exit_code_from(int wait_status) {
  if (WIFEXITED(wait_status)) return WEXITSTATUS(wait_status);
  return 128 + WTERMSIG(wait_status);
}

// A socket that a child keeps is not reset when the parent closes it: nobody hears of its end.
void close_what_is_the_parents() {
  constexpr unsigned kFirst = STDERR_FILENO + 1;
  if (::close_range(kFirst, ~0U, 0) == 0) return;
  const long open_max = ::sysconf(_SC_OPEN_MAX);  // an old kernel
  for (int descriptor = kFirst; descriptor < open_max; ++descriptor) ::close(descriptor);
}

// Between fork and exec: only what a signal handler may call.
[[noreturn]] void become(char* const* argv, const ChildProcess::Options& options, int output,
                         pid_t parent) {
  if (options.dies_with_parent) ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(kExecFailed);  // the parent died before the prctl
  ::setpgid(0, 0);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  const int input = options.input >= 0 ? options.input : ::open("/dev/null", O_RDONLY);
  if (input >= 0) ::dup2(input, STDIN_FILENO);
  ::dup2(options.output >= 0 ? options.output : output, STDOUT_FILENO);
  ::dup2(output, STDERR_FILENO);
  close_what_is_the_parents();
  ::execv(argv[0], argv);
  ::_exit(kExecFailed);
}

}  // namespace

Result<ChildProcess> ChildProcess::start(const Options& options) {
  const int output = ::open(options.output_file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC,
                            S_IRUSR | S_IWUSR);
  if (output < 0) {
    return fail(ErrorCode::kIo,
                fmt::format("cannot write {}: {}", options.output_file, std::strerror(errno)));
  }
  std::vector<char*> argv{const_cast<char*>(options.program.c_str())};
  for (const std::string& argument : options.arguments) {
    argv.push_back(const_cast<char*>(argument.c_str()));
  }
  argv.push_back(nullptr);

  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) become(argv.data(), options, output, parent);
  const int fork_error = errno;
  ::close(output);
  if (pid < 0) {
    return fail(ErrorCode::kIo,
                fmt::format("cannot start {}: {}", options.program, std::strerror(fork_error)));
  }
  return ChildProcess(pid);
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, 0)), exit_code_(other.exit_code_) {}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  if (this != &other) {
    kill_and_wait();
    pid_ = std::exchange(other.pid_, 0);
    exit_code_ = other.exit_code_;
  }
  return *this;
}

ChildProcess::~ChildProcess() {
  kill_and_wait();
}

std::optional<int> ChildProcess::poll() {
  if (pid_ == 0 || exit_code_) return exit_code_;
  int status = 0;
  if (::waitpid(pid_, &status, WNOHANG) == pid_) exit_code_ = exit_code_from(status);
  return exit_code_;
}

void ChildProcess::send_signal(int signal) {
  if (pid_ != 0 && !poll()) ::kill(pid_, signal);
}

void ChildProcess::kill_and_wait() {
  if (pid_ == 0 || poll()) return;
  ::kill(pid_, SIGKILL);
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  exit_code_ = exit_code_from(status);
}

bool ChildProcess::wait(Duration most) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(most);
  const int ended = static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0));  // readable once it has
  pollfd watched{.fd = ended, .events = POLLIN, .revents = 0};
  while (ended >= 0 && ::poll(&watched, 1, static_cast<int>(left.count())) < 0 && errno == EINTR) {
  }
  if (ended >= 0) ::close(ended);
  return poll().has_value();
}

int ChildProcess::wait_or_kill(Duration most) {
  wait(most);
  kill_and_wait();
  return exit_code_.value_or(exit_code_from(SIGKILL));
}

Result<std::string> own_program_path() {
  char path[PATH_MAX];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof(path));
  if (length <= 0 || length == static_cast<ssize_t>(sizeof(path))) {
    return fail(ErrorCode::kIo,
                fmt::format("cannot find the own program: {}", std::strerror(errno)));
  }
  return std::string(path, static_cast<std::size_t>(length));
}

}  // namespace swarmline
