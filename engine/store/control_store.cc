#include "engine/store/control_store.h"

#include "engine/store/embedded_store.h"
#include "engine/store/etcd_store.h"

namespace swarmline {

Result<std::unique_ptr<ControlStore>> open_control_store(Runtime& runtime,
                                                         const ControlStoreOptions& options) {
  if (options.etcd.empty()) return open_embedded_store(runtime, options.run_folder);
  std::vector<EtcdEndpoint> endpoints;
  for (const std::string& member : options.etcd) {
    const std::size_t colon = member.rfind(':');
    endpoints.push_back({member.substr(0, colon), member.substr(colon + 1)});
  }
  const auto tls = load_etcd_tls(options.etcd_tls);
  if (!tls) return std::unexpected(tls.error());
  return open_etcd_store(runtime, std::move(endpoints), options.run, options.lease, *tls);
}

}  // namespace swarmline
