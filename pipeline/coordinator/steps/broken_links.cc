#include "pipeline/coordinator/steps/broken_links.h"

#include <algorithm>

#include "base/marks.h"
#include "pipeline/protocol/knobs.h"

namespace swarmline {

void BrokenLinks::broke(PeerId one, PeerId other, Instant now) {
  breaks_[pair_of(one, other)] = now;
  if (!first_break_) first_break_ = now;
}

std::uint32_t BrokenLinks::ended_an_attempt(PeerId one, PeerId other) {
  return ++attempts_[pair_of(one, other)];
}

bool BrokenLinks::others_break_too(PeerId one, PeerId other, Instant now) const {
  if (!first_break_ || now - *first_break_ >= knobs().mesh_patience) return false;
  return std::ranges::any_of(breaks_, [&](const auto& entry) {
    const auto& [a, b] = entry.first;
    return a != one && a != other && b != one && b != other;
  });
}

std::size_t BrokenLinks::breaks_of(PeerId end, Instant now) const {
  return static_cast<std::size_t>(std::ranges::count_if(breaks_, [&](const auto& entry) {
    const auto& [pair, when] = entry;
    return (pair.first == end || pair.second == end) && now - when < knobs().mesh_patience;
  }));
}

PeerId BrokenLinks::at_fault(PeerId one, PeerId other, Instant now) const {
  const std::size_t of_one = breaks_of(one, now), of_other = breaks_of(other, now);
  if (of_one == of_other) return std::max(one, other);
  SWARMLINE_MARK("broken_links.one_end_of_many");
  return of_one > of_other ? one : other;
}

void BrokenLinks::clear() {
  attempts_.clear();
  breaks_.clear();
  first_break_.reset();
}

}  // namespace swarmline
