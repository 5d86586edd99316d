#include "pipeline/stage/gradients/gradient_fetch.h"

#include "pipeline/protocol/knobs.h"

namespace swarmline {

GradientFetch::GradientFetch(std::uint64_t bytes, std::uint64_t digest)
    : bytes_(bytes), digest_(digest), pieces_(bytes) {}

void GradientFetch::add_holders(const std::vector<Seat>& holders) {
  for (const Seat& holder : holders) {
    named_.insert(holder);
    pieces_.add_holder(holder);
  }
}

void GradientFetch::add_mates(const std::map<PeerId, Seat>& mates) {
  for (const auto& [peer, mate] : mates) pieces_.add_holder(mate);
}

void GradientFetch::on_peer_lost(const Seat& lost) {
  std::erase_if(named_, [&](const Seat& seat) { return is_over_with(seat, lost); });
  pieces_.on_lost(lost);
}

void GradientFetch::try_again() {
  pieces_.forgive_damaged();
  pieces_.forgive();
  for (const Seat& holder : named_) pieces_.add_holder(holder);
}

void GradientFetch::start_over(const std::map<PeerId, Seat>& mates) {
  pieces_ = PieceFetch(bytes_);
  add_mates(mates);
}

bool GradientFetch::count_try() {
  return ++tries_ <= knobs().fetch_tries_max;
}

}  // namespace swarmline
