#include "pipeline/coordinator/members/gathering.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/marks.h"
#include "pipeline/coordinator/members/data_desk.h"
#include "pipeline/protocol/knobs.h"

namespace swarmline {

void Gathering::begin(const std::string& why, std::uint64_t furthest) {
  why_ = why;
  furthest_ = furthest;
  began_ = alarms_.now();
  gathers_ = dirty_ = true;
  if (!has_trained_) return;
  wait_for_those_who_lived();
  arm_peers_wait();
}

void Gathering::stop() {
  gather_timer_.cancel();
  peers_wait_.cancel();
  builders_wait_.cancel();
  enough_since_.reset();
  expected_.clear();
  gathers_ = dirty_ = false;
}

void Gathering::wait_for_those_who_lived() {
  gathered_ = false;
  gather_timer_.arm(knobs().gather_time, [this] { gathered_ = dirty_ = true; });
}

void Gathering::arm_peers_wait() {
  asked_ = false;
  const Duration wait =
      std::max<Duration>(knobs().gather_time, from_seconds(shape_.config.net.peers_wait_seconds));
  peers_wait_.arm(wait, [this] { on_nobody_joined(); });
}

void Gathering::on_nobody_joined() {
  const std::vector<StageId> empty = members_.empty_stages();
  if (empty.empty()) return arm_peers_wait();
  if (somebody_may_live()) {
    if (asked_) {
      say_that_it_waits(empty.front());
      return arm_peers_wait();
    }
    SWARMLINE_MARK("gathering.hears_nobody");
    asked_ = true;
    return peers_wait_.arm(2 * knobs().probe_time, [this] { on_nobody_joined(); });
  }
  SWARMLINE_MARK("gathering.nobody_joined");
  rulings_.fail_run(fmt::format(
      "{}; the run ends after step {} because stage {} has no peer and nobody joined it within "
      "{:.0f} s",
      why_, furthest_, empty.front().value, to_seconds(alarms_.now() - began_)));
}

// Of those that were here and are not some have not refused when they were asked: they stand
// still, or it is this end that reaches nobody.
bool Gathering::somebody_may_live() {
  const Duration outlast = from_seconds(shape_.config.net.outlast_seconds);
  if (alarms_.now() - began_ >= outlast) return false;
  if (!asked_) ask_the_newest();
  return !may_live_.empty();
}

void Gathering::say_that_it_waits(StageId stage) {
  const Duration most = from_seconds(shape_.config.net.outlast_seconds);
  events_.event("waiting",
                fmt::format("stage {} has no peer, and of those that were lost not all refuse; the "
                            "run waits {:.3g} s more at most for anybody, then it ends",
                            stage.value, to_seconds(most - (alarms_.now() - began_))),
                LogLevel::kWarn);
}

void Gathering::ask_the_newest() {
  may_live_.clear();
  const auto& known = members_.members();
  for (auto member = known.rbegin(); member != known.rend(); ++member) {
    const PeerId peer = member->first;
    if (member->second.state != MemberState::kLost || ended_.contains(peer)) continue;
    const auto gone = [this, peer](const std::string&) {
      may_live_.erase(peer);
      if (may_live_.empty()) peers_wait_.arm(Duration{}, [this] { on_nobody_joined(); });
    };
    if (probe_.ask(member->second, gone)) may_live_.insert(peer);
    if (may_live_.size() >= kAskedMax) return;
  }
}

void Gathering::ready(PeerId peer) {
  expected_.erase(peer);
  dirty_ = true;
}

void Gathering::failed(const Seat& seat, const std::string& why) {
  why_ = fmt::format("{} failed: {}", events_.who(seat), why);
  dirty_ = true;
}

void Gathering::on_seat_lost(const SeatLoss& lost) {
  expected_.erase(lost.seat.peer);
  if (lost.how == Departure::kLeft || lost.how == Departure::kRefused ||
      lost.how == Departure::kFailed)
    ended_.insert(lost.seat.peer);
  else
    ended_.erase(lost.seat.peer);
  if (ended_.size() > kEndedMax) ended_.erase(ended_.begin());
  if (gathers_ && lost.how == Departure::kMoves) expected_.insert(lost.seat.peer);
  dirty_ = true;
}

bool Gathering::may_start(bool first_era) {
  dirty_ = false;
  const bool formed = members_.formed();
  if (!formed &&
      (first_era || !has_trained_ || !(gathered_ || expected_.empty()) || !members_.covered())) {
    enough_since_.reset();
    fill_stages();
    return false;
  }
  if (waits_for_builders(formed)) return false;
  if (!formed) SWARMLINE_MARK("gathering.goes_on_with_fewer");
  return true;
}

// Whoever was building its stage when there were enough belongs to the start, too; where all that
// are wanted are ready, for a while only. Whoever comes later joins a run that has begun.
bool Gathering::waits_for_builders(bool formed) {
  const Instant now = alarms_.now();
  if (!enough_since_) {
    enough_since_ = now;
    builders_wait_.arm(knobs().gather_time, [this] { dirty_ = true; });
  }
  const bool has_waited = formed && now - *enough_since_ >= knobs().gather_time;
  if (members_.building() == 0) return false;
  const bool waits =
      !has_waited && std::ranges::any_of(members_.members(), [this](const auto& entry) {
        const Member& member = entry.second;
        return member.state == MemberState::kBuilding && member.seated_at <= *enough_since_;
      });
  if (!waits) SWARMLINE_MARK("gathering.starts_before_all_have_built");
  return waits;
}

std::uint32_t Gathering::wanted(StageId stage) const {
  return has_trained_ ? 1U : members_.target_of(stage);
}

// Of these, in which those that lack the data come first, so many could serve the stage.
std::size_t Gathering::spare_for(StageId stage, const std::vector<Seat>& spare) const {
  if (stage != kReadingStage) return spare.size();
  return static_cast<std::size_t>(std::ranges::count_if(
      spare, [this](const Seat& seat) { return !members_.members().at(seat.peer).lacks_data; }));
}

// Whoever was to serve a stage was lost before the start, or before the era began: one of a stage
// that has more than is wanted goes there.
void Gathering::fill_stages() {
  if (has_trained_ ? !gathered_ : !expected_.empty()) return;
  const auto lacks = [this](const StageSpec& stage) {
    return members_.live_of(stage.stage) < wanted(stage.stage);
  };
  const auto has_spare = [this](const StageSpec& stage) {
    return members_.count_ready(stage.stage) > wanted(stage.stage);
  };
  if (!std::ranges::any_of(shape_.stages, has_spare) || !std::ranges::any_of(shape_.stages, lacks))
    return;
  std::map<StageId, std::vector<Seat>> spare;  // what each has beyond what is wanted
  for (const StageSpec& stage : shape_.stages) {
    std::vector<Seat> ready = members_.ready_of(stage.stage);
    // Those that could go to any stage are the last to stay.
    std::ranges::sort(ready, {}, [this](const Seat& seat) {
      const Member& member = members_.members().at(seat.peer);
      return std::tuple(!member.lacks_data, !member.fetches_data, seat);
    });
    ready.erase(ready.begin(),
                ready.begin() + std::min<std::ptrdiff_t>(std::ssize(ready), wanted(stage.stage)));
    spare[stage.stage] = std::move(ready);
  }
  bool moved = false;
  for (const StageSpec& stage : shape_.stages) {
    for (std::size_t live = members_.live_of(stage.stage); live < wanted(stage.stage); ++live) {
      const auto most =
          std::max_element(spare.begin(), spare.end(), [&](const auto& a, const auto& b) {
            return spare_for(stage.stage, a.second) < spare_for(stage.stage, b.second);
          });
      if (spare_for(stage.stage, most->second) == 0) break;
      SWARMLINE_MARK("gathering.stage_filled");
      rulings_.lose(most->second.back(), fmt::format("stage {} lacks a peer", stage.stage.value),
                    Departure::kMoves);
      most->second.pop_back();
      moved = true;
    }
  }
  if (moved && has_trained_) wait_for_those_who_lived();
}

}  // namespace swarmline
