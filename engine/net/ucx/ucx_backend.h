// Bulk links over UCX (ucx_link.h), between addresses of which the run says that nobody else is
// between them: UCX neither authenticates nor encrypts. The addresses of workers travel over the
// connection, with a secret that each end says first.
//   "ucx":  whatever UCX has: RDMA, else TCP; within one machine over its loopback interface
//           alone.
//   "rdma": RDMA alone, between hosts; not viable where this machine has no such hardware.
//   Errors: as engine/net/bulk/bulk_backend.h. Without UCX, where the program was built or where it
//           runs, it is not viable: one line. Ends with other versions of UCX have no link.
//   Hostile: UCX itself reads a worker's address, and all that reaches the ports on which workers
//           listen, and ends the process over bytes that it does not expect. So whoever is on a
//           network that the run trusts, and each member there, has to be trusted with as much
//           (docs/security.md).
//   Bounds: kUcxWorkersMax workers, one for each interface that links use.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "engine/net/bulk/bulk_backend.h"
#include "engine/runtime/asio_runtime.h"

namespace swarmline {

inline constexpr std::size_t kUcxWorkersMax = 4;

class UcxWorker;

class UcxBackend final : public BulkBackend {
 public:
  UcxBackend(AsioRuntime& runtime, bool rdma_only) : runtime_(runtime), rdma_only_(rdma_only) {}
  ~UcxBackend() override;
  // Whether this process has UCX. kNotFound: one sentence.
  static Result<void> find_library();

  std::string_view name() const override { return rdma_only_ ? "rdma" : "ucx"; }
  Result<void> is_viable() override;
  std::string address(const BulkPath& path) override;
  bool reaches(const BulkPath& path, std::string_view address) override;
  Result<BulkWay> await(const BulkPath& path, const BulkWay& offered, Duration timeout,
                        Made on_made) override;
  void meet(const BulkPath& path, const BulkWay& answered, Duration timeout, Made on_made) override;

 private:
  Result<std::shared_ptr<UcxWorker>> worker_for(const BulkPath& path);
  bool may_go(const BulkPath& path) const;
  void begin(const std::shared_ptr<UcxWorker>& worker, const BulkWay& other,
             const std::string& secret, bool speaks_first, Duration timeout, Made on_made);

  AsioRuntime& runtime_;
  const bool rdma_only_;
  std::map<std::string, std::shared_ptr<UcxWorker>> workers_;  // by their devices
};

// What UCX takes from the environment alone, and would do to the whole process: no signal handlers,
// no hooks in the memory functions, errors only to the standard error. What the user has set
// stays. Before the process has threads.
void set_ucx_environment();

}  // namespace swarmline
