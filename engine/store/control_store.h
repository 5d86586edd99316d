// The fourth door, control half, as a coordinator opens it: one run's journal, and who may write
// it. At any time at most one process leads a run; only it writes.
//   Backends: embedded (journal.sqlite and coordinator.lock in the run folder: leads until the
//             process ends), etcd (for fleets: leads while its lease lives); simulated
//             (sim/doors/sim_control_store.h).
//   Thread:   the control thread of the coordinator. Calls block (a file's fsync, or exchanges with
//             etcd of at most kEtcdDeadline each), but for renewals and the journal, which a leader
//             uses while it leads: they have threads and connections of their own.
//   Errors:   kRefused: another process leads, or may by now (a comparison was lost, or the lease
//             is gone): step down, touch nothing. kIo: no answer in time, or another
//             one than yes or no, or the file system's sentence: it may do later. kIncompatible: of
//             a newer format.
//   Source:   leases and fencing by the leader key's revision: etcd's recipe for elections.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "engine/runtime/runtime.h"
#include "engine/store/async_journal.h"
#include "engine/store/etcd_tls.h"

namespace swarmline {

inline constexpr Duration kEtcdDeadline = std::chrono::seconds(5);

class ControlStore {
 public:
  virtual ~ControlStore() = default;
  // True: this process leads from now on; `who` is what others see of it. False: another does.
  virtual Result<bool> try_lead(const std::string& who) = 0;
  // Empty: nobody leads.
  virtual Result<std::optional<std::string>> leader() = 0;
  // The leader says that it lives: at least every renewal_period(). `done` comes later, once.
  using Renewed = std::function<void(Result<void>)>;
  virtual void renew(Renewed done) = 0;
  virtual Duration renewal_period() const = 0;  // 0: never
  // So long after a renewal was begun that succeeded, or after try_lead(), nobody else leads.
  virtual Duration lease_time() const = 0;  // 0: for ever
  // Another may lead at once; what was written stays.
  virtual void release() = 0;
  // Of the leader; valid until release() and as long as the store. kRefused: this process does not
  // lead.
  virtual Result<AsyncJournal*> journal() = 0;
};

struct ControlStoreOptions {
  std::vector<std::string> etcd;  // its members, HOST:PORT; none: embedded
  std::string run_folder;         // of the embedded store
  std::string run;                // the run's name: what its keys in etcd begin with
  Duration lease = std::chrono::seconds(5);
  EtcdTlsFiles etcd_tls = {};
};
// The runtime outlives it. kUserMistake: a file of `etcd_tls` is not what it should be.
Result<std::unique_ptr<ControlStore>> open_control_store(Runtime& runtime,
                                                         const ControlStoreOptions& options);
// What is recorded of a run, for who does not lead it; null: nothing is. Whoever leads may write
// meanwhile. Calls block as a store's do.
Result<std::unique_ptr<JournalReader>> open_journal_to_read(const ControlStoreOptions& options);

}  // namespace swarmline
