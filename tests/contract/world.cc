#include "tests/contract/world.h"

#include <array>

#include "engine/device/cpu_device.h"
#include "engine/net/tcp/tcp_network.h"
#include "engine/runtime/asio_runtime.h"
#include "sim/doors/sim_device.h"
#include "sim/doors/sim_network.h"
#include "sim/doors/sim_runtime.h"
#include "tests/net/open_guard.h"

namespace swarmline {
namespace {

class RealWorld final : public World {
 public:
  RealWorld(const WorldOptions& options, bool tls) {
    for (auto& network : networks_) {
      network = std::make_unique<TcpNetwork>(
          runtime_, TcpOptions{.queue_bytes_max = options.queue_bytes_max,
                               .guard = tls ? std::make_shared<OpenGuard>() : nullptr});
    }
  }
  Runtime& runtime(int) override { return runtime_; }
  Network& network(int node) override { return *networks_.at(static_cast<std::size_t>(node)); }
  std::unique_ptr<Device> make_device(int, int queue_jobs_max) override {
    return std::make_unique<CpuDevice>(runtime_,
                                       CpuDeviceOptions{.queue_jobs_max = queue_jobs_max});
  }
  Address listen_address() const override { return {"127.0.0.1", 0}; }
  bool run_until(const std::function<bool()>& done, Duration limit) override {
    return runtime_.run_until(done, limit);
  }
  void die(int node) override { networks_.at(static_cast<std::size_t>(node)).reset(); }

 private:
  AsioRuntime runtime_;
  std::array<std::unique_ptr<TcpNetwork>, 2> networks_;
};

class SimWorld final : public World {
 public:
  SimWorld(const WorldOptions& options, bool keys)
      : runtime_(7),
        network_(runtime_, {.link = {.latency = std::chrono::milliseconds(1),
                                     .jitter = std::chrono::milliseconds(2),
                                     .bytes_per_second = 1e9},
                            .queue_bytes_max = options.queue_bytes_max}) {
    for (const int node : {0, 1})
      if (keys) network_.set_guard(id(node), std::make_shared<OpenGuard>());
  }
  Runtime& runtime(int node) override { return runtime_.node(id(node)); }
  Network& network(int node) override { return network_.node(id(node)); }
  std::unique_ptr<Device> make_device(int node, int queue_jobs_max) override {
    return std::make_unique<SimDevice>(runtime(node),
                                       SimDeviceOptions{.queue_jobs_max = queue_jobs_max});
  }
  Address listen_address() const override { return {"sim", 0}; }
  bool run_until(const std::function<bool()>& done, Duration limit) override {
    return runtime_.run_until(done, limit);
  }
  void die(int node) override { network_.kill(id(node)); }

 private:
  static SimNodeId id(int node) { return static_cast<SimNodeId>(node + 1); }
  SimRuntime runtime_;
  SimNetwork network_;
};

}  // namespace

std::unique_ptr<World> make_world(Backend backend, const WorldOptions& options) {
  if (backend == Backend::kReal || backend == Backend::kTls)
    return std::make_unique<RealWorld>(options, backend == Backend::kTls);
  return std::make_unique<SimWorld>(options, backend == Backend::kSimKeys);
}

}  // namespace swarmline
