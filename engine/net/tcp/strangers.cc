#include "engine/net/tcp/strangers.h"

#include <algorithm>

#include "base/check.h"

namespace swarmline {

std::optional<Strangers::Id> Strangers::too_many(const std::string& newest) const {
  const auto longest_silent = [](const Host& host) { return host.begin()->second; };
  if (const Host& own = hosts_.at(newest); own.size() > bounds_.of_host_max)
    return longest_silent(own);
  if (entries_.size() <= bounds_.connections_max) return std::nullopt;
  return longest_silent(std::ranges::max_element(hosts_, {}, [](const auto& host) {
                          return host.second.size();
                        })->second);
}

Strangers::Added Strangers::add(const std::string& host, Instant now) {
  const Id id = ++last_;
  entries_[id] = {.host = host, .heard = now};
  hosts_[host].emplace(now, id);
  return {id, too_many(host)};
}

void Strangers::heard(Id id, Instant now) {
  const auto found = entries_.find(id);
  if (found == entries_.end()) return;
  Host& host = hosts_[found->second.host];
  host.erase({found->second.heard, id});
  found->second.heard = now;
  host.emplace(now, id);
}

void Strangers::remove(Id id) {
  const auto node = entries_.extract(id);
  if (node.empty()) return;
  const Entry& entry = node.mapped();
  held_bytes_ -= entry.received_bytes;
  unsent_bytes_ -= entry.unsent_bytes;
  const auto host = hosts_.find(entry.host);
  host->second.erase({entry.heard, id});
  if (host->second.empty()) hosts_.erase(host);
}

bool Strangers::holds(Id id, std::uint64_t received_bytes, std::uint64_t unsent_bytes) {
  Entry& entry = entries_.at(id);
  const bool more_held = received_bytes > entry.received_bytes;
  const bool more_unsent = unsent_bytes > entry.unsent_bytes;
  held_bytes_ += received_bytes - entry.received_bytes;
  unsent_bytes_ += unsent_bytes - entry.unsent_bytes;
  entry.received_bytes = received_bytes;
  entry.unsent_bytes = unsent_bytes;
  return (!more_held || held_bytes_ <= bounds_.held_bytes_max) &&
         (!more_unsent || unsent_bytes_ <= bounds_.unsent_bytes_max);
}

void Strangers::check_invariants() const {
  std::size_t count = 0;
  std::uint64_t held = 0, unsent = 0;
  for (const auto& [name, host] : hosts_) {
    SWARMLINE_CHECK(!host.empty() && host.size() <= bounds_.of_host_max + 1);
    count += host.size();
    for (const auto& [heard, id] : host) {
      const Entry& entry = entries_.at(id);
      SWARMLINE_CHECK(entry.host == name && entry.heard == heard);
      held += entry.received_bytes;
      unsent += entry.unsent_bytes;
    }
  }
  SWARMLINE_CHECK(count == entries_.size() && held == held_bytes_ && unsent == unsent_bytes_);
}

}  // namespace swarmline
