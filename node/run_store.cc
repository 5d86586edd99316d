#include "node/run_store.h"

namespace swarmline {

ControlStoreOptions control_store_of(const RunConfig& config, const RunFolder& folder) {
  return {.etcd = config.run.etcd,
          .run_folder = folder.path(),
          .run = config.run.name,
          .lease = from_seconds(config.run.etcd_lease_seconds),
          .etcd_tls = {config.security.etcd_authority, config.security.etcd_certificate,
                       config.security.etcd_key}};
}

Result<std::unique_ptr<JournalReader>> read_journal(const RunConfig& config,
                                                    const RunFolder& folder) {
  return open_journal_to_read(control_store_of(config, folder));
}

}  // namespace swarmline
