// A run's journal in etcd, under PREFIX: meta/KEY (its bytes), seats/PEER/INCARNATION,
// commits/NUMBER, events/NUMBER (JSON; docs/formats/journal.md). Every write is conditional on the
// leader's key, so that one who does not lead any more writes nothing.
//   Ownership: the client outlives it. Thread, errors: as control_store.h says.
//   Bounds:    the newest kCommitsKept commits and kEventsKept events; older ones go. After every
//              kWritesPerCompaction writes etcd is told to forget what was overwritten, but for its
//              newest kRevisionsKept revisions, so that its quota lasts for any number of steps.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/store/etcd_client.h"
#include "engine/store/journal.h"

namespace swarmline {

inline constexpr std::uint64_t kCommitsKept = 10'000;
inline constexpr std::uint64_t kEventsKept = 10'000;
inline constexpr std::uint64_t kWritesPerCompaction = 1000;
inline constexpr std::int64_t kRevisionsKept = 1000;

// `leader_revision`: at which the key `leader_key` was created by this process.
Result<std::unique_ptr<Journal>> open_etcd_journal(EtcdClient& client, std::string prefix,
                                                   std::string leader_key,
                                                   std::int64_t leader_revision);
// Of a run that another process may lead; null: there is no journal under `prefix`.
Result<std::unique_ptr<JournalReader>> open_etcd_journal_to_read(std::unique_ptr<EtcdClient> client,
                                                                 std::string prefix);

}  // namespace swarmline
