// Two members of a group over doubles of a device's libraries, or what else maps memory. Words
// travel at once.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/fabric/device_fabric.h"
#include "engine/runtime/asio_runtime.h"
#include "tests/contract/ipc_double.h"
#include "tests/contract/nccl_double.h"

namespace swarmline {

class FabricPair {
 public:
  using MakeIpc = std::function<std::shared_ptr<IpcApi>()>;
  explicit FabricPair(FabricKind kind, const MakeIpc& make_ipc = {}) : kind_(kind) {
    for (const std::uint32_t rank : {1U, 0U}) {
      nccl_[rank] = std::make_shared<NcclDouble>(nccl_world_);
      ipc_[rank] = std::make_shared<IpcDouble>(ipc_world_);
      fabrics_[rank] = std::make_unique<DeviceFabric>(
          runtime_,
          DeviceFabricParts{.nccl = nccl_[rank],
                            .ipc = make_ipc ? make_ipc() : std::shared_ptr<IpcApi>(ipc_[rank]),
                            .patience = std::chrono::milliseconds(400)});
    }
  }
  FailingCalls& calls(std::uint32_t rank) {
    return kind_ == FabricKind::kNccl ? nccl_[rank]->calls() : ipc_[rank]->calls();
  }
  void open_groups() {
    for (const std::uint32_t rank : {1U, 0U})
      groups_[rank] = fabrics_[rank]->open(kind_, rank, 2, [this, rank](auto to, Buffer word) {
        if (on_word) on_word(word);
        if (groups_[to]) (void)groups_[to]->on_word(rank, word.bytes());
      });
  }
  // Sends its even memory and receives into its odd one.
  void exchange(std::uint32_t rank) {
    exchange(rank, {{FabricTransfer::Way::kSend, 1 - rank, memory_[2 * rank].data(), 1000},
                    {FabricTransfer::Way::kReceive, 1 - rank, memory_[2 * rank + 1].data(), 1000}});
  }
  void exchange(std::uint32_t rank, std::vector<FabricTransfer> transfers) {
    groups_[rank]->exchange(std::move(transfers), [this, rank](Result<void> result) {
      results_[rank].push_back(result ? "well" : result.error().what);
    });
  }
  bool have_results(std::size_t count) {
    return runtime_.run_until(
        [&] { return results_[0].size() >= count && results_[1].size() >= count; },
        std::chrono::seconds(20));
  }
  void close() {
    groups_.clear();
    fabrics_.clear();
  }

  std::function<void(Buffer& word)> on_word;  // may change it
  std::map<std::uint32_t, std::vector<std::byte>> memory_ = {
      {0, std::vector<std::byte>(1000, std::byte{1})},
      {1, std::vector<std::byte>(1000)},
      {2, std::vector<std::byte>(1000, std::byte{2})},
      {3, std::vector<std::byte>(1000)}};
  const FabricKind kind_;
  AsioRuntime runtime_;
  std::shared_ptr<NcclDoubleWorld> nccl_world_ = std::make_shared<NcclDoubleWorld>();
  std::shared_ptr<IpcDoubleWorld> ipc_world_ = std::make_shared<IpcDoubleWorld>();
  std::map<std::uint32_t, std::shared_ptr<NcclDouble>> nccl_;
  std::map<std::uint32_t, std::shared_ptr<IpcDouble>> ipc_;
  std::map<std::uint32_t, std::unique_ptr<DeviceFabric>> fabrics_;
  std::map<std::uint32_t, std::unique_ptr<FabricGroup>> groups_;
  std::map<std::uint32_t, std::vector<std::string>> results_;
};

}  // namespace swarmline
