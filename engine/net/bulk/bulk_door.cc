#include "engine/net/bulk/bulk_door.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "engine/net/bulk/bulk_connection.h"

namespace swarmline {

BulkBackend* BulkDoor::Shared::find(std::string_view name) const {
  const auto found =
      std::ranges::find_if(backends, [&](const auto& one) { return one->name() == name; });
  return found == backends.end() ? nullptr : found->get();
}

std::vector<BulkBackend*> BulkDoor::Shared::ways_for(const BulkPath& path) {
  std::vector<BulkBackend*> ways;
  for (const std::string& name : policy.ways) {
    BulkBackend* const backend = find(name);
    if (backend == nullptr || (!path.is_straight && !backend->goes_as_connection())) continue;
    const auto pause = broken.find({name, path.other_host});
    if (pause != broken.end() && runtime.now() < pause->second) continue;
    if (const auto viable = backend->is_viable(); !viable) {
      // Whoever leaves the choice need not hear of what there is not.
      if (policy.ways.size() == 1 && said.insert(name).second)
        log(LogLevel::kInfo, "payloads go over TCP and not over {}: {}", name, viable.error().what);
      continue;
    }
    ways.push_back(backend);
  }
  return ways;
}

bool BulkDoor::Shared::take_stream(std::string_view secret,
                                   const std::shared_ptr<Connection>& stream) const {
  return std::ranges::any_of(
      backends, [&](const auto& backend) { return backend->take_stream(secret, stream); });
}

void BulkDoor::Shared::note_broken(std::string_view way, const BulkPath& path) {
  ++counters.links_broken;
  const Instant now = runtime.now();
  std::erase_if(broken, [&](const auto& entry) { return entry.second <= now; });
  if (broken.size() < kBulkBrokenHostsMax)
    broken[{std::string(way), path.other_host}] = now + kBulkBrokenPause;
}

std::shared_ptr<BulkDoor::Measured> BulkDoor::Shared::measured_on(const std::string& way,
                                                                  const BulkPath& path) {
  std::erase_if(measured, [now = runtime.now()](const auto& entry) {
    return entry.second->way && entry.second->until <= now;
  });
  const auto known = measured.find({way, path.other_host});
  if (known != measured.end()) return known->second;
  auto none = std::make_shared<Measured>();
  if (measured.size() < kBulkMeasuredHostsMax) measured[{way, path.other_host}] = none;
  return none;
}

BulkDoor::BulkDoor(Runtime& runtime, BulkDoorOptions options,
                   std::vector<std::unique_ptr<BulkBackend>> backends)
    : shared_(std::make_shared<Shared>(
          Shared{.runtime = runtime, .options = options, .backends = std::move(backends)})) {
  SWARMLINE_CHECK(options.payload_bytes_min > kBulkTicketBytes);
}

BulkDoor::~BulkDoor() {
  std::vector<std::shared_ptr<BulkConnection>> open;
  for (BulkConnection* connection : shared_->open)
    if (auto held = connection->weak_from_this().lock()) open.push_back(std::move(held));
  for (const auto& connection : open) connection->abandon();
}

void BulkDoor::allow(BulkPolicy policy) {
  shared_->policy = std::move(policy);
}

std::shared_ptr<BulkConnection> BulkDoor::over(std::shared_ptr<Connection> connection) {
  return std::make_shared<BulkConnection>(shared_, std::move(connection));
}

}  // namespace swarmline
