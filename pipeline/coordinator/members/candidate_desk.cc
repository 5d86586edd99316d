#include "pipeline/coordinator/members/candidate_desk.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

namespace swarmline {

namespace {

// Two receivers may be off their shares by so many senders before one of these changes its mind.
constexpr double kSlack = 2;

struct Receiver {
  double share = 0;  // of the senders
  double senders = 0;
  double excess() const { return senders - share; }
};
using Receivers = std::map<Seat, Receiver>;

using Known = std::map<Seat, std::set<Seat>>;

bool less_known(const Receivers::value_type& a, const Receivers::value_type& b) {
  return a.second.excess() < b.second.excess();
}

// One sender forgets the one that is known to the most too many for one known to too few.
std::optional<Seat> swap_one(Receivers& receivers, Known& known) {
  std::vector<Receivers::value_type*> order;
  for (auto& entry : receivers) order.push_back(&entry);
  std::ranges::sort(order, [](auto* a, auto* b) {
    return std::pair(a->second.excess(), a->first) < std::pair(b->second.excess(), b->first);
  });
  for (auto high = order.rbegin(); high != order.rend(); ++high) {
    for (auto* low : order) {
      if ((*high)->second.excess() - low->second.excess() <= kSlack) break;
      const auto sender = std::ranges::find_if(known, [&](const auto& entry) {
        return entry.second.contains((*high)->first) && !entry.second.contains(low->first);
      });
      if (sender == known.end()) continue;
      sender->second.erase((*high)->first);
      sender->second.insert(low->first);
      --(*high)->second.senders;
      ++low->second.senders;
      return sender->first;
    }
  }
  return std::nullopt;
}

}  // namespace

std::set<Seat> CandidateDesk::update(StageId stage, const std::vector<Seat>& senders,
                                     const std::map<Seat, double>& speeds) {
  Known& known = stages_[stage];
  std::set<Seat> changed;
  const std::set<Seat> sending(senders.begin(), senders.end());
  std::erase_if(known, [&](const auto& entry) { return !sending.contains(entry.first); });
  const std::size_t wanted = std::min(kKnown, speeds.size());
  const double all = std::accumulate(speeds.begin(), speeds.end(), 0.0,
                                     [](double sum, const auto& e) { return sum + e.second; });
  Receivers receivers;
  for (const auto& [seat, speed] : speeds)
    receivers[seat].share = static_cast<double>(senders.size()) *
                            std::min(1.0, static_cast<double>(wanted) * speed / all);
  for (const Seat& sender : senders) {
    std::set<Seat>& seats = known[sender];
    if (std::erase_if(seats, [&](const Seat& seat) { return !speeds.contains(seat); }) > 0)
      changed.insert(sender);
    for (const Seat& seat : seats) ++receivers.at(seat).senders;
  }
  for (auto& [sender, seats] : known) {
    while (seats.size() < wanted) {
      auto least = receivers.end();
      for (auto it = receivers.begin(); it != receivers.end(); ++it)
        if (!seats.contains(it->first) && (least == receivers.end() || less_known(*it, *least)))
          least = it;
      seats.insert(least->first);
      ++least->second.senders;
      changed.insert(sender);
    }
  }
  while (wanted < receivers.size()) {
    const auto swapped = swap_one(receivers, known);
    if (!swapped) break;
    changed.insert(*swapped);
  }
  return changed;
}

const std::set<Seat>& CandidateDesk::known_to(const Seat& sender) const {
  static const std::set<Seat> kNobody;
  const auto stage = stages_.find(sender.stage);
  if (stage == stages_.end()) return kNobody;
  const auto known = stage->second.find(sender);
  return known == stage->second.end() ? kNobody : known->second;
}

}  // namespace swarmline
