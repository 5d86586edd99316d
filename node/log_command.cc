#include "node/log_command.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"

namespace swarmline {
namespace {

constexpr const char* kShell = "/bin/sh";
constexpr const char* kKey = "log.command";

// Without the SIGPIPE that a pipe without a reader sends to this whole process.
ssize_t write_quietly(int fd, std::string_view bytes) {
  sigset_t pipe, before, pending;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  sigpending(&pending);
  ::pthread_sigmask(SIG_BLOCK, &pipe, &before);
  const ssize_t written = ::write(fd, bytes.data(), bytes.size());
  const int error = errno;
  if (written < 0 && error == EPIPE && sigismember(&pending, SIGPIPE) == 0) {
    constexpr timespec kNow{};
    while (::sigtimedwait(&pipe, nullptr, &kNow) < 0 && errno == EINTR) {
    }
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  return written;
}

std::string how_command_ended(int code) {
  return code > 128 ? fmt::format("was ended by signal {}", code - 128)
                    : fmt::format("ended with code {}", code);
}

}  // namespace

LogCommand::LogCommand(Runtime& runtime, Options options)
    : runtime_(runtime), options_(std::move(options)), policy_(options_.restarts) {
  start();
  tick();
}

LogCommand::~LogCommand() {
  runtime_.cancel(timer_);
  close_input();
  signal_all(SIGKILL);
}

void LogCommand::start() {
  restart_at_.reset();
  started_ = runtime_.now();
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    log(LogLevel::kWarn, "{}: no pipe: {}", kKey, std::strerror(errno));
    return died(127);
  }
  auto child = ChildProcess::start({.program = kShell,
                                    .arguments = {"-c", options_.command},
                                    .output_file = options_.output_file,
                                    .input = ends[0],
                                    .dies_with_parent = false});
  ::close(ends[0]);
  if (!child) {
    ::close(ends[1]);
    log(LogLevel::kWarn, "{}: {}", kKey, child.error().what);
    return died(127);
  }
  ::fcntl(ends[1], F_SETFL, O_NONBLOCK);
  child_.emplace(std::move(*child));
  input_ = ends[1];
}

void LogCommand::line(std::string_view json) {
  ++lines_given_;
  if (given_up_ || done_ || bytes_ + json.size() + 1 > options_.queue_bytes_max) {
    ++dropped_;
    if (given_up_) return;  // that has been said
    if (const auto times = drops_.happened(runtime_.now()))
      log(LogLevel::kWarn, "{} takes lines too slowly: {} more were dropped, {} in all", kKey,
          times, dropped_);
    return;
  }
  lines_.push_back(std::string(json) + "\n");
  bytes_ += lines_.back().size();
  pump();
}

void LogCommand::pump() {
  while (input_ >= 0 && !lines_.empty()) {
    const std::string& next = lines_.front();
    const ssize_t more = write_quietly(input_, std::string_view(next).substr(written_));
    if (more < 0 && errno == EINTR) continue;
    if (more < 0 && errno == EAGAIN) return;
    if (more < 0) {  // it reads no more
      close_input();
      return signal_all(SIGKILL);
    }
    written_ += static_cast<std::size_t>(more);
    if (written_ < next.size()) continue;
    bytes_ -= next.size();
    written_ = 0;
    lines_.pop_front();
  }
}

void LogCommand::tick() {
  look_at_child();
  if (restart_at_ && !done_ && runtime_.now() >= *restart_at_) start();
  pump();
  if (done_) look_at_end();
  if (done_ || !term_at_) timer_ = runtime_.call_after(kTick, guard_.wrap([this] { tick(); }));
}

void LogCommand::look_at_child() {
  if (!child_) return;
  const auto code = child_->poll();
  if (!code) return;
  signal_all(SIGKILL);  // what it left behind
  child_.reset();
  close_input();
  if (!done_) died(*code);
}

void LogCommand::died(int code) {
  const Instant now = runtime_.now();
  const auto pause = policy_.died(now - started_);
  if (!pause) {
    given_up_ = true;
    log(LogLevel::kWarn,
        "{} {}, {} times in a row soon after its start; it gets no more lines; see {}", kKey,
        how_command_ended(code), policy_.short_lives(), options_.output_file);
    return drop_everything();
  }
  // At once is for who has lived.
  restart_at_ = now + std::max(*pause, options_.restarts.pause_first);
  log(LogLevel::kWarn, "{} {}; started again in {:.3g} s; see {}", kKey, how_command_ended(code),
      to_seconds(*restart_at_ - now), options_.output_file);
}

void LogCommand::drop_everything() {
  dropped_ += lines_.size();
  lines_.clear();
  bytes_ = 0;
}

void LogCommand::end(std::function<void()> done) {
  term_at_ = runtime_.now() + options_.grace;
  done_ = std::move(done);
  runtime_.cancel(timer_);
  tick();
}

void LogCommand::look_at_end() {
  const Instant now = runtime_.now();
  if (lines_.empty()) close_input();
  if (child_ && now >= *term_at_ && !kill_at_) {
    log(LogLevel::kWarn, "{} has not ended for {:.3g} s; it is ended", kKey,
        to_seconds(options_.grace));
    close_input();
    signal_all(SIGTERM);
    kill_at_ = now + kKillAfter;
  }
  if (child_ && kill_at_ && now >= *kill_at_) signal_all(SIGKILL);
  if (child_) return;
  drop_everything();
  if (dropped_ > 0)
    log(LogLevel::kWarn, "{}: {} of {} lines were dropped", kKey, dropped_, lines_given_);
  runtime_.post(guard_.wrap(std::exchange(done_, nullptr)));
}

// It reads a line that it has not had whole from its beginning again.
void LogCommand::close_input() {
  if (input_ >= 0) ::close(std::exchange(input_, -1));
  written_ = 0;
}

// The shell's whole process group.
void LogCommand::signal_all(int signal) {
  if (child_) ::kill(-child_->pid(), signal);
}

}  // namespace swarmline
