// Two nodes on one backend of the doors, so that one suite states what every backend does.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>

#include <gtest/gtest.h>

#include "engine/device/device.h"
#include "engine/net/network.h"
#include "engine/net/ucx/ucx_backend.h"
#include "engine/runtime/runtime.h"

namespace swarmline {

enum class Backend { kReal, kTls, kShm, kShmTls, kUcx, kStreams, kStreamsTls, kSim, kSimKeys };

inline std::ostream& operator<<(std::ostream& out, Backend backend) {
  return out << (backend == Backend::kReal         ? "Real"
                 : backend == Backend::kTls        ? "Tls"
                 : backend == Backend::kShm        ? "Shm"
                 : backend == Backend::kShmTls     ? "ShmTls"
                 : backend == Backend::kUcx        ? "Ucx"
                 : backend == Backend::kStreams    ? "Streams"
                 : backend == Backend::kStreamsTls ? "StreamsTls"
                 : backend == Backend::kSim        ? "Sim"
                                                   : "SimKeys");
}

struct WorldOptions {
  std::uint64_t queue_bytes_max = 1 << 30;
  Duration stalled_max = std::chrono::seconds(60);  // as of BulkDoorOptions
};

class World {
 public:
  virtual ~World() = default;
  virtual Runtime& runtime(int node) = 0;  // 0 or 1
  virtual Network& network(int node) = 0;
  virtual std::unique_ptr<Device> make_device(int node, int queue_jobs_max) = 0;
  virtual Address listen_address() const = 0;  // any free port
  virtual bool run_until(const std::function<bool()>& done, Duration limit) = 0;
  // The node vanishes without a goodbye.
  virtual void die(int node) = 0;

  void run_for(Duration time) {
    run_until([] { return false; }, time);
  }
};

std::unique_ptr<World> make_world(Backend backend, const WorldOptions& options = {});

class BackendTest : public ::testing::TestWithParam<Backend> {
 protected:
  void SetUp() override {
    if (GetParam() != Backend::kUcx) return;  // the library reads its settings as it is loaded
    if (const auto ucx = UcxBackend::find_library(); !ucx) GTEST_SKIP() << ucx.error().what;
  }
  std::unique_ptr<World> world_ = make_world(GetParam());
};

#define SWARMLINE_FOR_EVERY_BACKEND(Suite)                                                 \
  INSTANTIATE_TEST_SUITE_P(Doors, Suite, ::testing::Values(Backend::kReal, Backend::kSim), \
                           ::testing::PrintToStringParamName())

// Both networks once more, with links that are authenticated, and, real ones, sealed; and with
// payloads that go another way.
#define SWARMLINE_FOR_EVERY_NETWORK(Suite)                                              \
  INSTANTIATE_TEST_SUITE_P(                                                             \
      Doors, Suite,                                                                     \
      ::testing::Values(Backend::kReal, Backend::kTls, Backend::kShm, Backend::kShmTls, \
                        Backend::kUcx, Backend::kSim, Backend::kSimKeys),               \
      ::testing::PrintToStringParamName())

// Real networks: every way that payloads go.
#define SWARMLINE_FOR_EVERY_WAY(Suite)                                                  \
  INSTANTIATE_TEST_SUITE_P(                                                             \
      Ways, Suite,                                                                      \
      ::testing::Values(Backend::kReal, Backend::kTls, Backend::kShm, Backend::kShmTls, \
                        Backend::kUcx, Backend::kStreams, Backend::kStreamsTls),        \
      ::testing::PrintToStringParamName())

}  // namespace swarmline
