// The control store of a fleet, in etcd: see control_store.h. Keys begin with /swarmline/RUN/.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/store/control_store.h"
#include "engine/store/etcd_client.h"

namespace swarmline {

std::unique_ptr<ControlStore> open_etcd_store(Runtime& runtime, std::vector<EtcdEndpoint> endpoints,
                                              const std::string& run, Duration lease,
                                              const EtcdTls& tls);
Result<std::unique_ptr<JournalReader>> read_etcd_journal(std::vector<EtcdEndpoint> endpoints,
                                                         const std::string& run,
                                                         const EtcdTls& tls);

}  // namespace swarmline
