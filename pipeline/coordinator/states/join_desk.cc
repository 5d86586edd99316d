#include "pipeline/coordinator/states/join_desk.h"

#include <utility>

namespace swarmline {

std::vector<Seat> JoinDesk::begin(StageId stage, std::uint64_t version,
                                  const std::vector<Seat>& mates) {
  Desk& desk = stages_[stage];
  const bool same = !desk.following.empty() && desk.version == version;
  if (desk.waiting.empty() || (!desk.following.empty() && !same)) return {};
  if (!same) {
    desk.version = version;
    desk.bytes = 0;
    desk.hashes.clear();
    desk.holders.clear();
    desk.asked = {mates.begin(), mates.end()};
  }
  const std::vector<Seat> joiners(desk.waiting.begin(), desk.waiting.end());
  desk.following.merge(desk.waiting);
  desk.waiting.clear();
  return joiners;
}

bool JoinDesk::frozen(const Seat& mate, std::uint64_t version, std::uint64_t bytes,
                      std::vector<std::string> hashes) {
  Desk& desk = stages_[mate.stage];
  if (desk.version != version || desk.asked.erase(mate) == 0) return false;
  if (desk.holders.empty()) {
    desk.bytes = bytes;
    desk.hashes = std::move(hashes);
  } else if (desk.bytes != bytes || desk.hashes != hashes) {
    return false;
  }
  desk.holders.insert(mate);
  return true;
}

std::optional<JoinDesk::Offer> JoinDesk::offer(StageId stage) const {
  const auto found = stages_.find(stage);
  if (found == stages_.end() || found->second.following.empty()) return std::nullopt;
  const Desk& desk = found->second;
  // Version 0 is what everybody begins with.
  if (desk.holders.empty() && desk.version > 0) return std::nullopt;
  return Offer{.version = desk.version,
               .bytes = desk.bytes,
               .hashes = desk.hashes,
               .holders = {desk.holders.begin(), desk.holders.end()},
               .followers = {desk.following.begin(), desk.following.end()}};
}

void JoinDesk::seated(const Seat& joiner) {
  Desk& desk = stages_[joiner.stage];
  desk.waiting.erase(joiner);
  desk.following.erase(joiner);
}

void JoinDesk::lost(const Seat& seat) {
  Desk& desk = stages_[seat.stage];
  desk.waiting.erase(seat);
  desk.following.erase(seat);
  const bool had = desk.holders.erase(seat) + desk.asked.erase(seat) > 0;
  if (!had || !desk.holders.empty() || !desk.asked.empty()) return;
  desk.waiting.merge(desk.following);
  desk.following.clear();
}

bool JoinDesk::waits(const Seat& seat) const {
  const auto found = stages_.find(seat.stage);
  return found != stages_.end() && found->second.waiting.contains(seat);
}

std::vector<Seat> JoinDesk::waiting_at(StageId stage) const {
  const auto found = stages_.find(stage);
  if (found == stages_.end()) return {};
  return {found->second.waiting.begin(), found->second.waiting.end()};
}

std::vector<Seat> JoinDesk::holding_up(StageId stage) const {
  const auto found = stages_.find(stage);
  if (found == stages_.end() || found->second.waiting.empty()) return {};
  return {found->second.following.begin(), found->second.following.end()};
}

bool JoinDesk::follows(const Seat& seat) const {
  const auto found = stages_.find(seat.stage);
  return found != stages_.end() && found->second.following.contains(seat);
}

}  // namespace swarmline
