#include "tests/contract/fabric_world.h"

#include "engine/fabric/device_fabric.h"
#include "engine/runtime/asio_runtime.h"
#include "sim/doors/sim_fabric.h"
#include "sim/doors/sim_runtime.h"
#include "tests/contract/ipc_double.h"
#include "tests/contract/nccl_double.h"

namespace swarmline {
namespace {

class SimFabricWorld final : public FabricWorld {
 public:
  SimFabricWorld(FabricKind kind, std::uint32_t ranks, const FabricWorldOptions& options)
      : kind_(kind), runtime_(7), fabrics_(runtime_, {.patience = options.patience}) {
    for (std::uint32_t rank = 0; rank < ranks; ++rank)
      fabrics_.set_place(node(rank), {.host = "one",
                                      .card = rank,
                                      .nccl = kind == FabricKind::kNccl,
                                      .ipc = kind == FabricKind::kIpc});
  }
  FabricKind kind() const override { return kind_; }
  Runtime& runtime(std::uint32_t rank) override { return runtime_.node(node(rank)); }
  Fabric& fabric(std::uint32_t rank) override { return fabrics_.node(node(rank)); }
  bool run_until(const std::function<bool()>& done, Duration limit) override {
    return runtime_.run_until(done, limit);
  }
  void fail_next(std::uint32_t rank) override { fabrics_.break_exchange(node(rank)); }

 private:
  static SimNodeId node(std::uint32_t rank) { return rank + 1; }
  const FabricKind kind_;
  SimRuntime runtime_;
  SimFabrics fabrics_;
};

// Members of one process over doubles of the libraries, on one runtime.
class RealFabricWorld final : public FabricWorld {
 public:
  RealFabricWorld(FabricKind kind, std::uint32_t ranks, const FabricWorldOptions& options)
      : kind_(kind) {
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      nccl_.push_back(std::make_shared<NcclDouble>(nccl_world_));
      ipc_.push_back(std::make_shared<IpcDouble>(ipc_world_));
      fabrics_.push_back(std::make_unique<DeviceFabric>(
          runtime_, DeviceFabricParts{
                        .nccl = nccl_.back(), .ipc = ipc_.back(), .patience = options.patience}));
    }
  }
  FabricKind kind() const override { return kind_; }
  Runtime& runtime(std::uint32_t) override { return runtime_; }
  Fabric& fabric(std::uint32_t rank) override { return *fabrics_[rank]; }
  bool run_until(const std::function<bool()>& done, Duration limit) override {
    return runtime_.run_until(done, limit);
  }
  void fail_next(std::uint32_t rank) override {
    if (kind_ == FabricKind::kNccl)
      nccl_[rank]->calls().fail_next("group_end");
    else
      ipc_[rank]->calls().fail_next("copy");
  }

 private:
  const FabricKind kind_;
  AsioRuntime runtime_;
  std::shared_ptr<NcclDoubleWorld> nccl_world_ = std::make_shared<NcclDoubleWorld>();
  std::vector<std::shared_ptr<NcclDouble>> nccl_;  // by rank
  std::shared_ptr<IpcDoubleWorld> ipc_world_ = std::make_shared<IpcDoubleWorld>();
  std::vector<std::shared_ptr<IpcDouble>> ipc_;
  std::vector<std::unique_ptr<DeviceFabric>> fabrics_;
};

}  // namespace

std::unique_ptr<FabricWorld> make_fabric_world(FabricBackend backend, std::uint32_t ranks,
                                               const FabricWorldOptions& options) {
  const bool is_nccl = backend == FabricBackend::kNccl || backend == FabricBackend::kSimNccl;
  const FabricKind kind = is_nccl ? FabricKind::kNccl : FabricKind::kIpc;
  if (backend == FabricBackend::kNccl || backend == FabricBackend::kIpc)
    return std::make_unique<RealFabricWorld>(kind, ranks, options);
  return std::make_unique<SimFabricWorld>(kind, ranks, options);
}

}  // namespace swarmline
