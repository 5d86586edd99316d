#include "node/admission/key_record.h"

namespace swarmline {
namespace {

constexpr const char* kPublicKey = "public_key";

}  // namespace

bool leads_to(const KeyHash& before, const RunKey& key, const std::string& run) {
  if (before == key.identity.hash()) return true;
  const auto path = succession(before, key.handovers, run, std::nullopt);
  return !path.empty() && path.back().into == key.identity.public_key();
}

Result<std::optional<std::string>> recorded_key(Journal& journal) {
  return journal.get_meta(kPublicKey);
}

Result<void> record_key(Journal& journal, const RunKey& key, double now) {
  const std::string hash = to_string(key.identity.hash());
  const JournalRecord records[] = {
      MetaRecord{.key = kPublicKey, .value = hash},
      EventRecord{.wall_seconds = now, .kind = "key_changed", .detail = hash}};
  return journal.write(records);
}

}  // namespace swarmline
