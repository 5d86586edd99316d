#include "engine/net/ucx/ucx_backend.h"

#include <arpa/inet.h>
#include <filesystem>
#include <ifaddrs.h>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "engine/identity/secrets.h"
#include "engine/net/ucx/ucx_link.h"

namespace swarmline {
namespace {

constexpr const char* kRdmaFolder = "/sys/class/infiniband";

// In UCX's words: every port of every RDMA device.
std::vector<std::string> rdma_devices() {
  std::vector<std::string> devices;
  std::error_code error;
  for (const auto& device : std::filesystem::directory_iterator(kRdmaFolder, error)) {
    std::error_code none;
    for (const auto& port : std::filesystem::directory_iterator(device.path() / "ports", none))
      devices.push_back(
          fmt::format("{}:{}", device.path().filename().string(), port.path().filename().string()));
  }
  return devices;
}

std::string host_text(const sockaddr* address) {
  std::string text(INET6_ADDRSTRLEN, '\0');
  const void* const bytes =
      address->sa_family == AF_INET
          ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in*>(address)->sin_addr)
          : &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  return ::inet_ntop(address->sa_family, bytes, text.data(), static_cast<socklen_t>(text.size())) ==
                 nullptr
             ? std::string()
             : std::string(text.c_str());
}

// The interface that has this address: UCX would offer those of all, some of which nobody reaches.
std::string interface_of(const std::string& host) {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return {};
  std::string found;
  for (const ifaddrs* one = all; one != nullptr && found.empty(); one = one->ifa_next)
    if (one->ifa_addr != nullptr &&
        (one->ifa_addr->sa_family == AF_INET || one->ifa_addr->sa_family == AF_INET6) &&
        host_text(one->ifa_addr) == host)
      found = one->ifa_name;
  ::freeifaddrs(all);
  return found;
}

bool is_one_machine(const BulkPath& path) {
  return path.own_host == path.other_host;
}

std::string token_of(const std::string& secret) {
  return secret.substr(0, kUcxTokenBytes);
}

}  // namespace

UcxBackend::~UcxBackend() {
  for (const auto& [devices, worker] : workers_) worker->wind_up();
}

Result<void> UcxBackend::find_library() {
  const auto library = UcxLibrary::open();
  return library ? Result<void>() : std::unexpected(library.error());
}

bool UcxBackend::may_go(const BulkPath& path) const {
  return path.is_trusted && !(rdma_only_ && is_one_machine(path));
}

Result<void> UcxBackend::is_viable() {
  if (rdma_only_ && rdma_devices().empty())
    return fail(ErrorCode::kNotFound, "this machine has no RDMA device");
  return find_library();
}

// A worker listens on its interfaces for whoever reaches them: within a machine on none that others
// reach.
Result<std::shared_ptr<UcxWorker>> UcxBackend::worker_for(const BulkPath& path) {
  if (!may_go(path))
    return fail(ErrorCode::kRefused, "this run trusts nobody with a link over UCX there");
  std::vector<std::string> devices =
      is_one_machine(path) ? std::vector<std::string>{} : rdma_devices();
  const bool has_rdma = !devices.empty();
  if (!rdma_only_) {
    const std::string own = is_one_machine(path) ? "lo" : interface_of(path.own_host);
    if (own.empty() && devices.empty())
      return fail(ErrorCode::kIo,
                  fmt::format("no interface of this machine has {}", path.own_host));
    if (!own.empty()) devices.push_back(own);
  }
  const std::string list = fmt::format("{}", fmt::join(devices, ","));
  if (const auto known = workers_.find(list); known != workers_.end()) return known->second;
  if (workers_.size() >= kUcxWorkersMax)
    return fail(ErrorCode::kIo, "links of too many interfaces are wanted");
  auto made = UcxWorker::make(runtime_, rdma_only_ ? "ib" : has_rdma ? "ib,tcp" : "tcp", list);
  if (made) workers_[list] = *made;
  return made;
}

std::string UcxBackend::address(const BulkPath& path) {
  const auto worker = worker_for(path);
  return worker ? (*worker)->address() : std::string();
}

bool UcxBackend::reaches(const BulkPath& path, std::string_view address) {
  return may_go(path) && UcxWorker::is_address(address);
}

void UcxBackend::begin(const std::shared_ptr<UcxWorker>& worker, const BulkWay& other,
                       const std::string& secret, bool speaks_first, Duration timeout,
                       Made on_made) {
  // Whatever settles it first: the other end's word, the deadline.
  const auto made = std::make_shared<Made>(std::move(on_made));
  const auto timer = std::make_shared<TimerId>();
  const auto slot = std::make_shared<std::shared_ptr<UcxLink>>();
  const auto settle = [&runtime = runtime_, made, timer, slot](Result<void> result) {
    const Made once = std::exchange(*made, {});
    const std::shared_ptr<UcxLink> link = std::exchange(*slot, nullptr);
    runtime.cancel(*timer);
    if (!once) return;
    if (result) return once(std::shared_ptr<BulkLink>(link));
    link->close();
    once(std::unexpected(std::move(result).error()));
  };
  *slot = std::make_shared<UcxLink>(worker, token_of(secret), [slot, settle, speaks_first] {
    if (!speaks_first && *slot) (*slot)->say_here();
    settle({});
  });
  *timer = runtime_.call_after(timeout, [settle] {
    settle(fail(ErrorCode::kDeadline, "the other end says nothing over UCX"));
  });
  if (const auto dialled = (*slot)->dial(other.address); !dialled)
    return runtime_.post([settle, error = dialled.error()] { settle(std::unexpected(error)); });
  if (speaks_first) (*slot)->say_here();
}

Result<BulkWay> UcxBackend::await(const BulkPath& path, const BulkWay& offered, Duration timeout,
                                  Made on_made) {
  const auto worker = worker_for(path);
  if (!worker) return std::unexpected(worker.error());
  BulkWay own{.backend = std::string(name()),
              .address = (*worker)->address(),
              .secret = random_secret(kBulkSecretBytes)};
  begin(*worker, offered, own.secret, false, timeout, std::move(on_made));
  return own;
}

void UcxBackend::meet(const BulkPath& path, const BulkWay& answered, Duration timeout,
                      Made on_made) {
  const auto worker = worker_for(path);
  if (!worker)
    return runtime_.post([on_made = std::move(on_made), error = worker.error()] {
      on_made(std::unexpected(error));
    });
  begin(*worker, answered, answered.secret, true, timeout, std::move(on_made));
}

}  // namespace swarmline
