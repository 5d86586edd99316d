#include "engine/store/control_store.h"

#include "engine/store/embedded_store.h"
#include "engine/store/etcd_store.h"

namespace swarmline {
namespace {

std::vector<EtcdEndpoint> endpoints_of(const ControlStoreOptions& options) {
  std::vector<EtcdEndpoint> endpoints;
  for (const std::string& member : options.etcd) {
    const std::size_t colon = member.rfind(':');
    endpoints.push_back({member.substr(0, colon), member.substr(colon + 1)});
  }
  return endpoints;
}

}  // namespace

Result<std::unique_ptr<ControlStore>> open_control_store(Runtime& runtime,
                                                         const ControlStoreOptions& options) {
  if (options.etcd.empty()) return open_embedded_store(runtime, options.run_folder);
  const auto tls = load_etcd_tls(options.etcd_tls);
  if (!tls) return std::unexpected(tls.error());
  return open_etcd_store(runtime, endpoints_of(options), options.run, options.lease, *tls);
}

Result<std::unique_ptr<JournalReader>> open_journal_to_read(const ControlStoreOptions& options) {
  if (options.etcd.empty()) return read_embedded_journal(options.run_folder);
  const auto tls = load_etcd_tls(options.etcd_tls);
  if (!tls) return std::unexpected(tls.error());
  return read_etcd_journal(endpoints_of(options), options.run, *tls);
}

}  // namespace swarmline
