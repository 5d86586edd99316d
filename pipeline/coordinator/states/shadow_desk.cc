#include "pipeline/coordinator/states/shadow_desk.h"

#include <algorithm>
#include <tuple>

namespace swarmline {

std::vector<Seat> ShadowDesk::of_stage(StageId stage) const {
  std::vector<Seat> seats;
  for (const auto& [seat, shadow] : shadows_)
    if (seat.stage == stage) seats.push_back(seat);
  return seats;
}

std::vector<Seat> ShadowDesk::ready_of(StageId stage) const {
  std::vector<Seat> seats = of_stage(stage);
  std::erase_if(seats, [this](const Seat& seat) { return !shadows_.at(seat).ready; });
  return seats;
}

std::vector<Seat> ShadowDesk::hosted_by(PeerId host) const {
  std::vector<Seat> seats;
  for (const auto& [seat, shadow] : shadows_)
    if (seat.peer == host) seats.push_back(seat);
  return seats;
}

bool ShadowDesk::rests(PeerId host, Instant now) const {
  const auto found = rests_until_.find(host);
  return found != rests_until_.end() && now < found->second;
}

void ShadowDesk::rest(PeerId host, Instant now) {
  std::erase_if(rests_until_, [now](const auto& entry) { return entry.second <= now; });
  rests_until_[host] = now + knobs().shadow_rest_time;
}

void ShadowDesk::add(const Seat& shadow, StageId host_stage, Instant now) {
  shadows_[shadow] = Shadow{.host_stage = host_stage, .since = now};
}

void ShadowDesk::begin(const Seat& shadow, Instant now) {
  Shadow& one = shadows_.at(shadow);
  one.follows = true;
  one.since = now;
}

void ShadowDesk::restart(const Seat& shadow, Instant now) {
  add(shadow, shadows_.at(shadow).host_stage, now);
}

void ShadowDesk::said(const Seat& shadow, std::uint64_t version, std::uint64_t digest,
                      Instant now) {
  Shadow& one = shadows_.at(shadow);
  if (one.version == 0) one.fetch_time = now - one.since;
  one.version = version;
  one.digest = digest;
  if (version < one.has) {
    one.behind = now;  // it goes on
  } else {
    one.has = version;
    one.behind.reset();
  }
}

void ShadowDesk::confirm(const Seat& shadow, Instant now) {
  shadows_.at(shadow).ready = true;
  shadows_.at(shadow).since = now;
}

void ShadowDesk::asked(const Seat& shadow, Instant now) {
  if (Shadow& one = shadows_.at(shadow); !one.asked) one.asked = now;
}

void ShadowDesk::answered(const Seat& shadow) {
  shadows_.at(shadow).asked.reset();
}

void ShadowDesk::committed(const Seat& shadow, std::uint64_t version, bool has_it, Instant now) {
  Shadow& one = shadows_.at(shadow);
  one.asked.reset();
  if (has_it) one.has = version;
  if (one.version < version && !one.behind) one.behind = now;
}

std::vector<Seat> ShadowDesk::late(Instant now) const {
  std::vector<Seat> seats;
  for (const auto& [seat, shadow] : shadows_) {
    const Duration limit =
        std::max<Duration>(knobs().shadow_late_min, kLateDownloads * shadow.fetch_time);
    const auto over = [&](const std::optional<Instant>& since) {
      return since && now - *since > limit;
    };
    if (shadow.ready ? over(shadow.asked) || over(shadow.behind)
                     : now - shadow.since > knobs().shadow_fetch_time)
      seats.push_back(seat);
  }
  return seats;
}

void ShadowDesk::restart_deadlines(Instant now) {
  for (auto& [seat, shadow] : shadows_) {
    shadow.since = now;
    if (shadow.asked) shadow.asked = now;
    if (shadow.behind) shadow.behind = now;
  }
}

std::optional<Seat> ShadowDesk::heir(StageId stage, std::uint64_t version,
                                     const std::function<std::size_t(StageId)>& served) const {
  std::set<PeerId> taken;
  return heir_besides(stage, version, served, taken);
}

std::optional<Seat> ShadowDesk::heir_besides(StageId stage, std::uint64_t version,
                                             const std::function<std::size_t(StageId)>& served,
                                             std::set<PeerId>& taken) const {
  std::vector<Seat> able = ready_of(stage);
  std::erase_if(able, [&](const Seat& seat) {
    return shadows_.at(seat).has < version || taken.contains(seat.peer);
  });
  std::ranges::sort(able, {}, [&](const Seat& seat) {
    const Shadow& shadow = shadows_.at(seat);
    return std::tuple(shadow.version < version, ~served(shadow.host_stage), seat);
  });
  for (const Seat& seat : able) {
    taken.insert(seat.peer);
    const StageId left = shadows_.at(seat).host_stage;
    if (served(left) > 1 || heir_besides(left, version, served, taken)) return seat;
    taken.erase(seat.peer);
  }
  return std::nullopt;
}

}  // namespace swarmline
