// For how many bytes of microbatches a stage has room: what was measured when it took its seat,
// less since its device was full, and more again in steps that go well: what filled it may be gone.
//   Units:   bytes; steps, as they end here.
//   Thread:  plain values.
//   Bounds:  never more than was measured. A try that fails doubles the steps before the next one,
//            up to kStepsMax.
#pragma once

#include <algorithm>
#include <cstdint>

namespace swarmline {

class AdmitRoom {
 public:
  static constexpr std::uint64_t kStepsAtFirst = 8;
  static constexpr std::uint64_t kStepsMax = 512;

  explicit AdmitRoom(std::uint64_t measured) : measured_(measured), bytes_(measured) {}

  std::uint64_t bytes() const { return bytes_; }
  // The device had no room for one more beside so many bytes.
  void on_full(std::uint64_t bytes) {
    bytes_ = std::min(bytes_, bytes);
    good_steps_ = 0;
    if (tried_) steps_ = std::min(2 * steps_, kStepsMax);
    tried_ = false;
  }
  // A step ended; `one`: the largest of its microbatches. Whether there is more room now.
  bool on_step(std::uint64_t one) {
    if (bytes_ == measured_ || one == 0 || ++good_steps_ < steps_) return false;
    good_steps_ = 0;
    tried_ = true;
    bytes_ += std::min(one, measured_ - bytes_);
    return true;
  }

 private:
  std::uint64_t measured_;
  std::uint64_t bytes_;
  std::uint64_t steps_ = kStepsAtFirst;  // that go well before more is tried
  std::uint64_t good_steps_ = 0;
  bool tried_ = false;  // more, since it was full
};

}  // namespace swarmline
