// What a coordinator says of phases while this peer can't go on with it yet, in its order.
//   Ownership: owns the frames. Thread: control thread; pure.
//   Bounds:    kWaitingMax frames.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <utility>

#include "base/check.h"
#include "engine/net/frame.h"

namespace swarmline {

class CoordinatorInbox {
 public:
  static constexpr std::size_t kWaitingMax = 4096;

  // False: there is no room.
  bool push(Frame frame) {
    if (waiting_.size() >= kWaitingMax) return false;
    waiting_.push_back(std::move(frame));
    return true;
  }
  std::optional<Frame> pop() {
    if (waiting_.empty()) return std::nullopt;
    Frame frame = std::move(waiting_.front());
    waiting_.pop_front();
    return frame;
  }
  const std::deque<Frame>& waiting() const { return waiting_; }
  std::size_t size() const { return waiting_.size(); }
  bool empty() const { return waiting_.empty(); }
  void clear() { waiting_.clear(); }
  void check_invariants() const { SWARMLINE_CHECK(waiting_.size() <= kWaitingMax); }

 private:
  std::deque<Frame> waiting_;
};

}  // namespace swarmline
