// Real time: one control thread (the one that calls run()) over Boost.Asio, which only .cc files
// see.
//   Ownership: outlives whatever was made with it (networks, devices, channels). Destroying it
//              drops what is pending without calling it.
//   Thread:    run() and everything else on one thread; post(), request_stop() and now() from any.
//   Errors:    a callback must not throw.
//   Bounds:    a callback that runs longer than kSlowHandler is counted and logged: it delays every
//              heartbeat.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "engine/runtime/runtime.h"

namespace swarmline {

class AsioRuntime final : public Runtime {
 public:
  static constexpr Duration kSlowHandler = std::chrono::milliseconds(20);

  struct Stats {
    std::uint64_t handlers = 0;
    std::uint64_t slow_handlers = 0;
    Duration slowest{};
  };

  AsioRuntime();
  ~AsioRuntime() override;
  AsioRuntime(const AsioRuntime&) = delete;
  AsioRuntime& operator=(const AsioRuntime&) = delete;

  Instant now() const override;
  TimerId call_at(Instant when, std::function<void()> fn) override;
  void cancel(TimerId id) override;
  void post(std::function<void()> fn) override;
  double wall_seconds() const override;

  // Runs callbacks until request_stop(); with nothing to do it sleeps. May be called again.
  void run();
  // Runs callbacks until `done()` holds (checked after each one) or `limit` has passed; true when
  // done.
  bool run_until(const std::function<bool()>& done, Duration limit);
  // Ends run() after the callbacks posted before. A request made before run() ends it as soon as it
  // starts.
  void request_stop();
  // From now on SIGINT and SIGTERM call `fn` with the signal's number on the control thread, each
  // time.
  void on_signals(std::function<void(int)> fn);
  Stats stats() const;

  struct Impl;  // asio_access.h, for backends
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace swarmline
