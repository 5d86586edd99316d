#include "pipeline/stage/gradients/gradient_fetch.h"

#include "pipeline/protocol/knobs.h"

namespace swarmline {

GradientFetch::GradientFetch(std::uint64_t bytes, std::uint64_t digest)
    : bytes_(bytes), digest_(digest), pieces_(bytes) {}

void GradientFetch::add_holders(const Holders& holders) {
  for (const auto& [linked, holder] : holders) {
    named_.insert_or_assign(linked, holder);
    pieces_.add_holder(linked);
  }
}

// A mate is asked itself, even where a shadow beside it was named before.
void GradientFetch::add_mates(const std::map<PeerId, Seat>& mates) {
  for (const auto& [peer, mate] : mates) {
    if (const auto named = named_.find(mate); named != named_.end()) named->second = mate;
    pieces_.add_holder(mate);
  }
}

Seat GradientFetch::who_has_it(const Seat& linked) const {
  const auto named = named_.find(linked);
  return named == named_.end() ? linked : named->second;
}

void GradientFetch::on_peer_lost(const Seat& lost) {
  std::erase_if(named_, [&](const auto& entry) { return is_over_with(entry.first, lost); });
  pieces_.on_lost(lost);
}

void GradientFetch::try_again() {
  pieces_.forgive_damaged();
  pieces_.forgive_late();
  pieces_.forgive();
  for (const auto& [linked, holder] : named_) pieces_.add_holder(linked);
}

void GradientFetch::start_over(const std::map<PeerId, Seat>& mates) {
  pieces_ = PieceFetch(bytes_);
  add_mates(mates);
}

bool GradientFetch::count_try() {
  return ++tries_ <= knobs().fetch_tries_max;
}

}  // namespace swarmline
