// How many second tries there may be of microbatches that nobody has failed at yet.
//   What:    every microbatch earns `share` of a try, which is kept until one is needed. Whoever
//            sends microbatches on earns for its part of their way, so that all senders together
//            make `share` of a try a microbatch; the coordinator, which leases again, earns for
//            whole ones and pays for what senders report: it is one budget.
//   Units:   tries: microbatches that are computed twice.
//   Thread:  plain value.
//   Bounds:  at most `most` tries are kept. What others have made may leave a debt.
#pragma once

#include <algorithm>
#include <cstdint>

namespace swarmline {

class HedgeBudget {
 public:
  HedgeBudget(double share, double most) : share_(share), most_(most) {}

  void earn(double microbatches) { tries_ = std::min(most_, tries_ + share_ * microbatches); }
  bool has_one() const { return tries_ >= 1; }
  bool spend() {  // false: there is none
    if (!has_one()) return false;
    tries_ -= 1;
    return true;
  }
  void charge(std::uint64_t tries_of_others) { tries_ -= static_cast<double>(tries_of_others); }

 private:
  double share_;
  double most_;
  double tries_ = 0;
};

}  // namespace swarmline
