#include "pipeline/coordinator/steps/replica_audit.h"

#include <algorithm>

#include "base/check.h"
#include "base/marks.h"

namespace swarmline {

void ReplicaAudit::say(const Seat& seat, std::uint64_t version, std::uint64_t digest) {
  said_[{seat.stage, version}][seat] = digest;
  look_again(seat.stage, version);
  std::erase_if(said_,
                [&](const auto& entry) { return entry.first.second + kVersionsKept <= version; });
}

void ReplicaAudit::forget(const Seat& seat) {
  for (auto& [key, digests] : said_) digests.erase(seat);
  followers_.erase(seat);
}

void ReplicaAudit::on_rollback() {
  said_.clear();
  unsettled_.clear();
  followers_.clear();
}

bool ReplicaAudit::all_agree(const std::map<Seat, std::uint64_t>& digests) {
  return std::ranges::all_of(
      digests, [&](const auto& entry) { return entry.second == digests.begin()->second; });
}

ReplicaAudit::Verdict ReplicaAudit::compare(StageId stage, std::uint64_t version,
                                            std::size_t members) const {
  const auto said = said_.find({stage, version});
  if (said == said_.end() || all_agree(said->second)) return {};
  Verdict verdict;
  for (const auto& [seat, digest] : said->second) verdict.votes[digest].push_back(seat);
  const Votes& votes = verdict.votes;
  const auto most = std::max_element(votes.begin(), votes.end(), [](const auto& a, const auto& b) {
    return a.second.size() < b.second.size();
  });
  if (2 * most->second.size() > members) {
    SWARMLINE_MARK("replica_audit.minority");
    verdict.kind = Verdict::Kind::kMinority;
    verdict.most = most->second.front();
    for (const auto& [digest, seats] : votes)
      if (digest != most->first)
        verdict.wrong.insert(verdict.wrong.end(), seats.begin(), seats.end());
    return verdict;
  }
  verdict.kind = said->second.size() < members ? Verdict::Kind::kUnknown : Verdict::Kind::kTie;
  if (verdict.kind == Verdict::Kind::kTie) SWARMLINE_MARK("replica_audit.tie");
  const auto other = votes.begin()->first == most->first ? std::next(votes.begin()) : votes.begin();
  verdict.one = most->second.front();
  verdict.other = other->second.front();
  return verdict;
}

bool ReplicaAudit::knows(StageId stage, std::uint64_t version) const {
  return said(stage, version) > 0;
}

std::size_t ReplicaAudit::said(StageId stage, std::uint64_t version) const {
  const auto said = said_.find({stage, version});
  return said == said_.end() ? 0 : said->second.size();
}

bool ReplicaAudit::has_said(StageId stage, std::uint64_t version, std::uint64_t digest) const {
  const auto said = said_.find({stage, version});
  return said != said_.end() && std::ranges::any_of(said->second, [&](const auto& entry) {
           return entry.second == digest;
         });
}

void ReplicaAudit::follower_ready(const Seat& seat, std::uint64_t version, std::uint64_t digest) {
  followers_[seat] = {version, digest};
  look_again(seat.stage, version);
}

std::vector<ReplicaAudit::Follower> ReplicaAudit::followers_of(StageId stage,
                                                               std::uint64_t version) const {
  std::vector<Follower> followers;
  if (followers_.empty()) return followers;
  const auto said = said_.find({stage, version});
  if (said == said_.end()) return followers;
  for (const auto& [seat, holds] : followers_) {
    if (seat.stage != stage || holds.first != version) continue;
    std::optional<std::uint64_t> mates;
    for (const auto& [mate, digest] : said->second)
      if (mate != seat) mates = digest;
    if (!mates) continue;
    followers.push_back({.seat = seat, .digest = holds.second, .same = *mates == holds.second});
  }
  return followers;
}

std::optional<ReplicaAudit::Follower> ReplicaAudit::heir(StageId stage,
                                                         std::uint64_t version) const {
  for (const auto& [seat, holds] : followers_)
    if (seat.stage == stage && holds.first == version &&
        (!knows(stage, version) || has_said(stage, version, holds.second)))
      return Follower{.seat = seat, .digest = holds.second, .same = true};
  return std::nullopt;
}

void ReplicaAudit::check_invariants() const {
  for (const auto& [key, digests] : said_)
    for (const auto& [seat, digest] : digests) SWARMLINE_CHECK(seat.stage == key.first);
}

}  // namespace swarmline
