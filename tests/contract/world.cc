#include "tests/contract/world.h"

#include <array>

#include "engine/device/cpu_device.h"
#include "engine/net/bulk/bulk_factory.h"
#include "engine/net/tcp/tcp_network.h"
#include "engine/net/ucx/ucx_backend.h"
#include "engine/runtime/asio_runtime.h"
#include "sim/doors/sim_device.h"
#include "sim/doors/sim_network.h"
#include "sim/doors/sim_runtime.h"
#include "tests/contract/bulk_network.h"
#include "tests/net/open_guard.h"

namespace swarmline {
namespace {

class RealWorld final : public World {
 public:
  // `way`: of payloads; empty: with their frames.
  RealWorld(const WorldOptions& options, bool tls, const std::string& way) {
    for (auto& network : networks_) {
      network = std::make_unique<TcpNetwork>(
          runtime_, TcpOptions{.queue_bytes_max = options.queue_bytes_max,
                               .guard = tls ? std::make_shared<OpenGuard>() : nullptr});
      if (!way.empty())
        network = std::make_unique<BulkNetwork>(
            runtime_, std::move(network), pairs_, way,
            BulkDoorOptions{.payload_bytes_min = kBulkTicketBytes + 1,
                            .queue_bytes_max = options.queue_bytes_max,
                            .stalled_max = options.stalled_max});
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
  BulkPairs pairs_;
  std::array<std::unique_ptr<Network>, 2> networks_;
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
  switch (backend) {
    case Backend::kReal:
    case Backend::kTls:
      return std::make_unique<RealWorld>(options, backend == Backend::kTls, "");
    case Backend::kShm:
    case Backend::kShmTls:
      return std::make_unique<RealWorld>(options, backend == Backend::kShmTls, "shm");
    case Backend::kUcx:
      set_ucx_environment();
      return std::make_unique<RealWorld>(options, false, "ucx");
    case Backend::kStreams:
    case Backend::kStreamsTls:
      return std::make_unique<RealWorld>(options, backend == Backend::kStreamsTls, "streams");
    case Backend::kSim:
    case Backend::kSimKeys:
      break;
  }
  return std::make_unique<SimWorld>(options, backend == Backend::kSimKeys);
}

}  // namespace swarmline
