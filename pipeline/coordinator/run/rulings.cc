#include "pipeline/coordinator/run/rulings.h"

#include <algorithm>

namespace swarmline {

void Rulings::lose(const Seat& seat, const std::string& why, Departure how) {
  if (std::ranges::none_of(losses_, [&](const SeatLoss& loss) { return loss.seat == seat; }))
    losses_.push_back({.seat = seat, .why = why, .how = how});
}

void Rulings::stage_is_gone(const SeatLoss& last) {
  gone_.push_back(last);
}

void Rulings::fail_run(const std::string& sentence) {
  if (!failure_) failure_ = sentence;
}

void Rulings::roll_back(const std::string& why) {
  if (!rollback_) rollback_ = why;
}

void Rulings::step_down(const std::string& why) {
  if (!step_down_) step_down_ = why;
}

void Rulings::begin_again(const std::string& why, bool heard_nobody) {
  if (!self_restart_) self_restart_ = SelfRestart{.why = why, .heard_nobody = heard_nobody};
}

void Rulings::clear_losses() {
  losses_.clear();
  gone_.clear();
  rollback_.reset();
  self_restart_.reset();
}

bool Rulings::any() const {
  return !losses_.empty() || !gone_.empty() || failure_ || rollback_ || step_down_ || self_restart_;
}

}  // namespace swarmline
