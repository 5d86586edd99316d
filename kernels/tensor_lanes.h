// Tensors on their way into a device and out of it, beside what it computes: rings of places, each
// with a side in the host's memory and one in the device's.
//   Shapes:    bytes, as they travel.
//   Ownership: the rings own their places; the lanes outlive them. A LeavingTensor may outlive
//              neither.
//   Thread:    one at a time, the device's; a LeavingTensor is waited for or dropped on any.
//   Errors:    those of the lanes. After one nothing of that tensor is of use, and its place is.
//   Bounds:    kArriving tensors on their way in, kLeaving (or fewer, as the ring was made) on
//              their way out; claim() waits for one of these to be dropped: on another thread, or
//              before so many are claimed. A place grows to the largest tensor that it has had.
#pragma once

#include <array>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "base/device_address.h"
#include "kernels/lanes.h"

namespace swarmline::kernels {

class ArrivingTensors {
 public:
  static constexpr std::size_t kArriving = 2;

  explicit ArrivingTensors(Lanes& lanes) : lanes_(lanes) {}
  ArrivingTensors(const ArrivingTensors&) = delete;
  ArrivingTensors& operator=(const ArrivingTensors&) = delete;
  ~ArrivingTensors();  // waits for what is on its way
  // Where the bytes are for all that the compute lane is given from now on, until used(). They are
  // read before this returns.
  Result<DeviceAddress> bring(BytesView bytes);
  // The compute lane has been given all that reads them, or writes there.
  Result<void> used();

 private:
  struct Place {
    std::unique_ptr<LaneMemory> host, device;
    std::unique_ptr<LaneEvent> arrived, used;
  };
  Result<void> make_room(Place& place, std::size_t bytes);

  Lanes& lanes_;
  std::array<Place, kArriving> places_;
  std::size_t next_ = 0;
};

class LeavingTensors;

// One tensor on its way out, or a number alone.
class LeavingTensor {
 public:
  LeavingTensor(LeavingTensors& ring, std::size_t place) : ring_(ring), place_(place) {}
  LeavingTensor(const LeavingTensor&) = delete;
  LeavingTensor& operator=(const LeavingTensor&) = delete;
  ~LeavingTensor();

  // Where the compute lane makes it.
  DeviceAddress device() const;
  // The compute lane has been given all that makes it, and the number, where there is one: it goes
  // on to the host.
  Result<void> leave(std::size_t bytes, const double* number);
  // Waits until the compute lane has made it; on any thread, as wait().
  Result<void> made();
  // A copy of it, once it is here.
  Result<Buffer> wait();
  double number() const;  // after wait(); 0 without one

 private:
  LeavingTensors& ring_;
  const std::size_t place_;
  std::size_t bytes_ = 0;
  bool has_number_ = false;
};

class LeavingTensors {
 public:
  static constexpr std::size_t kLeaving = 3;  // at most

  explicit LeavingTensors(Lanes& lanes, std::size_t places = kLeaving);
  LeavingTensors(const LeavingTensors&) = delete;
  LeavingTensors& operator=(const LeavingTensors&) = delete;
  ~LeavingTensors();  // waits for what is on its way
  Result<std::unique_ptr<LeavingTensor>> claim(std::size_t bytes);

 private:
  friend class LeavingTensor;
  struct Place {
    std::unique_ptr<LaneMemory> host, device, number;
    std::unique_ptr<LaneEvent> made, left;
    bool taken = false;  // under mutex_
  };
  Result<void> make_room(Place& place, std::size_t bytes);
  std::size_t take_place();
  void give_back(std::size_t place);

  Lanes& lanes_;
  std::array<Place, kLeaving> places_;
  const std::size_t count_;  // of them
  std::size_t next_ = 0;
  std::mutex mutex_;
  std::condition_variable given_back_;
};

}  // namespace swarmline::kernels
