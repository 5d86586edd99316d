// In which order a process that was stopped (SIGSTOP) takes up what waited for it: the real backend
// and the simulated one agree. The real one is "stopped" by not running its event loop: what comes
// meanwhile lies in its sockets, as it would. A device's thread would go on here, where a stopped
// process's does not: what jobs do is the simulated backend's own affair.
#include <array>
#include <memory>
#include <string>

#include "base/check.h"
#include "engine/net/tcp/tcp_network.h"
#include "engine/runtime/asio_runtime.h"
#include "sim/doors/sim_network.h"
#include "sim/doors/sim_runtime.h"
#include "tests/contract/world.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

// Two processes; the second one may be stopped.
class Processes {
 public:
  virtual ~Processes() = default;
  virtual Runtime& runtime(int process) = 0;
  virtual Network& network(int process) = 0;
  virtual Address listen_address() const = 0;
  virtual void run(Duration time) = 0;
  virtual void stop_second() = 0;
  virtual void wake_second() = 0;
};

class RealProcesses final : public Processes {
 public:
  Runtime& runtime(int process) override { return runtimes_.at(static_cast<std::size_t>(process)); }
  Network& network(int process) override { return networks_.at(static_cast<std::size_t>(process)); }
  Address listen_address() const override { return {"127.0.0.1", 0}; }
  void run(Duration time) override {
    const auto never = [] { return false; };
    const Instant end = runtimes_[0].now() + time;
    // On a machine that computes something else, time passes between two turns.
    for (int turns = 0; turns < kTurnsLeast || runtimes_[0].now() < end; ++turns) {
      runtimes_[0].run_until(never, 1ms);
      if (!stopped_) runtimes_[1].run_until(never, 1ms);
    }
  }
  void stop_second() override { stopped_ = true; }
  void wake_second() override { stopped_ = false; }

 private:
  static constexpr int kTurnsLeast = 10;
  std::array<AsioRuntime, 2> runtimes_;
  std::array<TcpNetwork, 2> networks_{TcpNetwork(runtimes_[0], {}), TcpNetwork(runtimes_[1], {})};
  bool stopped_ = false;
};

class SimProcesses final : public Processes {
 public:
  Runtime& runtime(int process) override { return runtime_.node(id(process)); }
  Network& network(int process) override { return network_.node(id(process)); }
  Address listen_address() const override { return {"sim", 0}; }
  void run(Duration time) override { runtime_.run_for(time); }
  void stop_second() override { runtime_.freeze(id(1)); }
  void wake_second() override { runtime_.thaw(id(1)); }

 private:
  static SimNodeId id(int process) { return static_cast<SimNodeId>(process + 1); }
  SimRuntime runtime_{7};
  SimNetwork network_{runtime_, {.link = {.latency = 1ms}}};
};

class Thaw : public testing::TestWithParam<Backend> {
 protected:
  Thaw() {
    if (GetParam() == Backend::kReal)
      processes_ = std::make_unique<RealProcesses>();
    else
      processes_ = std::make_unique<SimProcesses>();
    const auto bound = processes_->network(1).listen(
        processes_->listen_address(), [this](std::shared_ptr<Connection> connection) {
          connection->start({.on_frame = [this](const Frame& frame) { on_frame(frame.meta); },
                             .on_closed = [this](const Error&) { order_ += "closed "; }});
          accepted_.push_back(std::move(connection));
        });
    SWARMLINE_CHECK(bound.has_value());
    for (auto& connection : {&x_, &y_}) {
      processes_->network(0).connect(*bound, 10s, [connection](auto made) {
        *connection = *made;
        (*connection)->start({.on_closed = [](const Error&) {}});
      });
      processes_->run(20ms);
      SWARMLINE_CHECK(*connection != nullptr);
    }
  }

  void on_frame(const std::string& name) {
    order_ += name + " ";
    if (name == "x1") at_second([this] { order_ += "posted-by-x1 "; });
    if (name == "y1") processes_->runtime(1).cancel(doomed_);
  }
  void at_second(std::function<void()> fn) { processes_->runtime(1).post(std::move(fn)); }
  TimerId timer(Duration after, const std::string& name) {
    return processes_->runtime(1).call_after(after, [this, name] { order_ += name + " "; });
  }
  void send(Connection& connection, std::string name) {
    connection.send({.kind = 1, .meta = std::move(name)});
    processes_->run(20ms);
  }

  std::unique_ptr<Processes> processes_;
  std::shared_ptr<Connection> x_, y_;
  std::vector<std::shared_ptr<Connection>> accepted_;
  TimerId doomed_;
  std::string order_;  // of what the second process did
};

// What it had posted itself; its sockets, one after another; then its timers, but for those that a
// frame has cancelled; then what follows from all of that, and that one of the sockets has ended.
TEST_P(Thaw, SocketsAreReadBeforeTimersFire) {
  timer(10ms, "late");
  timer(5ms, "early");
  doomed_ = timer(7ms, "doomed");
  at_second([this] { order_ += "posted "; });
  processes_->stop_second();
  send(*x_, "x1");
  send(*y_, "y1");
  send(*x_, "x2");
  x_->close();
  processes_->run(20ms);
  EXPECT_EQ(order_, "");
  processes_->wake_second();
  processes_->run(20ms);
  EXPECT_EQ(order_, "posted x1 x2 y1 early late posted-by-x1 closed ");
}

SWARMLINE_FOR_EVERY_BACKEND(Thaw);

}  // namespace
}  // namespace swarmline
