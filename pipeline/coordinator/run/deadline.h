// A time by which others have to have done something.
//   What:      calls back when it has passed. Time in which this process stood still counts against
//              nobody: what they did meanwhile lies unread in the sockets. So a deadline that fires
//              late, or during whose time the process was seen to stand still, begins anew.
//   Ownership: the alarms outlive it. Thread: control thread.
//   Bounds:    late by more than knobs().overslept_min; for that reason alone once, for what looks
//              saw as often as they saw it.
#pragma once

#include <utility>

#include "pipeline/coordinator/run/alarms.h"

namespace swarmline {

class Deadline {
 public:
  explicit Deadline(Alarms& alarms) : alarms_(alarms) {}

  // Instead of what it was armed for before.
  void arm(Duration wait, Alarms::Callback passed) {
    wait_ = wait;
    passed_ = std::move(passed);
    put_off_ = false;
    begin();
  }
  void cancel() { alarms_.cancel(timer_); }

 private:
  void begin();
  void fire();

  Alarms& alarms_;
  Duration wait_{};
  Alarms::Callback passed_;
  Instant began_{}, due_{};
  bool put_off_ = false;  // because it fired late
  TimerId timer_;
};

}  // namespace swarmline
