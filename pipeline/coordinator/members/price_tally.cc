#include "pipeline/coordinator/members/price_tally.h"

#include "base/check.h"

namespace swarmline {

void PriceTally::remove(double price, bool serves) {
  std::uint32_t& members = of(price, serves);
  SWARMLINE_CHECK(members > 0);
  --members;
  if (prices_[price] == Members{}) prices_.erase(price);
}

PriceTally::Sums PriceTally::sums() const {
  Sums sums;
  for (const auto& [price, members] : prices_) {
    sums.serving += price * members.serving;
    sums.joining += price * members.joining;
    if (price == 0) sums.unpriced = std::uint64_t{members.serving} + members.joining;
  }
  return sums;
}

}  // namespace swarmline
