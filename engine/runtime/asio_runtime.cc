#include "engine/runtime/asio_runtime.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <utility>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>

#include "base/log.h"
#include "engine/runtime/asio_access.h"
#include "engine/runtime/timer_queue.h"

namespace swarmline {
namespace asio = boost::asio;

namespace {

// The kernel timer is re-armed at least that often, so that far instants need no arithmetic near
// overflow.
constexpr Duration kLongestSleep = std::chrono::hours(1);

Instant steady_now() {
  return Instant(
      std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now().time_since_epoch()));
}

}  // namespace

struct AsioRuntime::Impl {
  asio::io_context io{1};  // one thread runs it; others may post
  asio::executor_work_guard<asio::io_context::executor_type> work{io.get_executor()};
  asio::steady_timer timer{io};
  asio::signal_set signals{io};
  TimerQueue timers;
  Instant armed_for = Instant::max();
  bool firing = false;
  bool stop = false;
  Stats stats;
  std::function<void(int)> on_signal;

  void arm();
  void fire();
  void wait_for_signal();
};

void AsioRuntime::Impl::arm() {
  if (firing || timers.empty()) return;  // fire() arms when it ends
  const Instant when = std::min(timers.next_due(), steady_now() + kLongestSleep);
  if (when >= armed_for) return;
  armed_for = when;
  timer.expires_at(std::chrono::steady_clock::time_point(when.time_since_epoch()));
  timer.async_wait([this](const boost::system::error_code& error) {
    if (!error) fire();
  });
}

void AsioRuntime::Impl::fire() {
  armed_for = Instant::max();
  firing = true;
  // Only what is due now: a timer set by one of these waits for the next round, so that sockets get
  // their turn.
  const Instant until = steady_now();
  const TimerId last = timers.last_added();
  while (!timers.empty() && timers.next_due() <= until && timers.next_id().value <= last.value) {
    const TimerQueue::Due due = timers.pop();
    HandlerScope scope(*this);
    due.fn();
  }
  firing = false;
  arm();
}

void AsioRuntime::Impl::wait_for_signal() {
  signals.async_wait([this](const boost::system::error_code& error, int number) {
    if (error) return;
    {
      HandlerScope scope(*this);
      on_signal(number);
    }
    wait_for_signal();
  });
}

AsioRuntime::AsioRuntime() : impl_(std::make_unique<Impl>()) {}
AsioRuntime::~AsioRuntime() = default;

Instant AsioRuntime::now() const {
  return steady_now();
}

TimerId AsioRuntime::call_at(Instant when, std::function<void()> fn) {
  const TimerId id = impl_->timers.add(when, std::move(fn));
  impl_->arm();
  return id;
}

void AsioRuntime::cancel(TimerId id) {
  impl_->timers.cancel(id);
}

void AsioRuntime::post(std::function<void()> fn) {
  asio::post(impl_->io, [impl = impl_.get(), fn = std::move(fn)] {
    HandlerScope scope(*impl);
    fn();
  });
}

double AsioRuntime::wall_seconds() const {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

void AsioRuntime::run() {
  impl_->stop = false;
  while (!impl_->stop) impl_->io.run_one();
}

bool AsioRuntime::run_until(const std::function<bool()>& done, Duration limit) {
  const Instant end = now() + limit;
  const TimerId wake = call_at(end, [] {});  // ends the sleep in run_one
  bool is_done = done();
  while (!is_done && now() < end) {
    impl_->io.run_one();
    is_done = done();
  }
  cancel(wake);
  return is_done;
}

void AsioRuntime::request_stop() {
  asio::post(impl_->io, [impl = impl_.get()] { impl->stop = true; });
}

void AsioRuntime::on_signals(std::function<void(int)> fn) {
  const bool first = !impl_->on_signal;
  impl_->on_signal = std::move(fn);
  if (!first) return;
  impl_->signals.add(SIGINT);
  impl_->signals.add(SIGTERM);
  impl_->wait_for_signal();
}

AsioRuntime::Stats AsioRuntime::stats() const {
  return impl_->stats;
}

asio::io_context& io_context_of(AsioRuntime& runtime) {
  return runtime.impl().io;
}

HandlerScope::HandlerScope(AsioRuntime::Impl& impl) : impl_(impl), start_(steady_now()) {}

HandlerScope::~HandlerScope() {
  const Duration took = steady_now() - start_;
  AsioRuntime::Stats& stats = impl_.stats;
  ++stats.handlers;
  stats.slowest = std::max(stats.slowest, took);
  if (took <= AsioRuntime::kSlowHandler) return;
  ++stats.slow_handlers;
  log(LogLevel::kDebug, "a callback held the control thread for {:.1f} ms", to_seconds(took) * 1e3);
}

}  // namespace swarmline
