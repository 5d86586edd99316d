#include "pipeline/coordinator/steps/source_shares.h"

#include <algorithm>
#include <utility>

namespace swarmline {

void SourceShares::set(std::uint64_t depth, std::map<PeerId, double> speeds) {
  depth_ = depth;
  double known = 0;
  std::size_t measured = 0;
  for (const auto& [peer, speed] : speeds) {
    known += speed;
    measured += speed > 0 ? 1 : 0;
  }
  const double mean = measured > 0 ? known / static_cast<double>(measured) : 1;
  const double sum = known + mean * static_cast<double>(speeds.size() - measured);
  shares_ = std::move(speeds);
  for (auto& [peer, speed] : shares_) speed = (speed > 0 ? speed : mean) / sum;
}

double SourceShares::share_of(PeerId source) const {
  const auto share = shares_.find(source);
  return share == shares_.end() ? 0 : share->second;
}

bool SourceShares::may_have_another(double share, std::uint64_t under_way,
                                    std::uint64_t left) const {
  if (!on()) return true;
  const std::uint64_t of_all = std::min(depth_, left);
  return static_cast<double>(under_way) < share * static_cast<double>(of_all);
}

}  // namespace swarmline
