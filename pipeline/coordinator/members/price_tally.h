// What the members of a run cost together by the hour, whoever comes and goes.
//   Units:  of the run's currency, an hour.
//   Thread: any, a plain value.
//   Bounds: a change costs O(log(prices)), a sum O(prices): of thousands of members few differ.
#pragma once

#include <cstdint>
#include <map>

namespace swarmline {

class PriceTally {
 public:
  struct Sums {
    double serving = 0;          // members that serve their stages
    double joining = 0;          // those that do not yet
    std::uint64_t unpriced = 0;  // those of both that say no price
    bool operator==(const Sums&) const = default;
  };

  void add(double price, bool serves) { ++of(price, serves); }
  void remove(double price, bool serves);
  Sums sums() const;
  bool operator==(const PriceTally&) const = default;

 private:
  struct Members {
    std::uint32_t serving = 0, joining = 0;
    bool operator==(const Members&) const = default;
  };
  std::uint32_t& of(double price, bool serves) {
    Members& members = prices_[price];
    return serves ? members.serving : members.joining;
  }
  std::map<double, Members> prices_;  // none without members
};

}  // namespace swarmline
