// CUDA's inter-process communication on this process's memory: the members of a group may be in one
// process here.
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "base/check.h"
#include "engine/fabric/ipc_api.h"
#include "tests/contract/device_doubles.h"

namespace swarmline {

struct IpcDoubleWorld {
  std::mutex mutex;
  std::map<DeviceAddress, int> mapped;
  int maps = 0;      // so far
  int mappings = 0;  // now
  int mappings_most = 0;
};

class IpcDouble final : public IpcApi {
 public:
  explicit IpcDouble(std::shared_ptr<IpcDoubleWorld> world) : world_(std::move(world)) {}

  FailingCalls& calls() { return calls_; }

  Result<void> choose_device() override { return calls_.check("choose_device"); }
  Result<std::unique_ptr<DeviceStream>> make_stream() override {
    SWARMLINE_TRY(calls_.check("make_stream"));
    return std::make_unique<DoubleStream>(calls_);
  }
  // Each range of memory is in an allocation of its own, which begins before it.
  Result<SharedMemory> share(DeviceAddress memory, std::uint64_t bytes) override {
    SWARMLINE_TRY(calls_.check("share"));
    const MappedMemory allocation{memory - kBefore, bytes + kBefore};
    SharedMemory shared{.offset = kBefore};
    std::memcpy(shared.handle.data(), &allocation, sizeof allocation);
    return shared;
  }
  Result<MappedMemory> map(const IpcHandle& handle) override {
    SWARMLINE_TRY(calls_.check("map"));
    MappedMemory allocation;
    std::memcpy(&allocation, handle.data(), sizeof allocation);
    const std::lock_guard lock(world_->mutex);
    ++world_->maps;
    ++world_->mapped[allocation.memory];
    world_->mappings_most = std::max(++world_->mappings, world_->mappings_most);
    return allocation;
  }
  void unmap(DeviceAddress mapped) override {
    const std::lock_guard lock(world_->mutex);
    --world_->mappings;
    SWARMLINE_CHECK(--world_->mapped.at(mapped) >= 0);
  }
  Result<void> copy(DeviceStream& stream, DeviceAddress to, DeviceAddress from,
                    std::uint64_t bytes) override {
    SWARMLINE_TRY(calls_.check("copy"));
    static_cast<DoubleStream&>(stream).put([=] { std::memcpy(to, from, bytes); });
    return {};
  }

 private:
  static constexpr std::uint64_t kBefore = 32;
  std::shared_ptr<IpcDoubleWorld> world_;
  FailingCalls calls_;
};

}  // namespace swarmline
