#include "kernels/tensor_lanes.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/byte_ops.h"
#include "base/check.h"

namespace swarmline::kernels {
namespace {

Result<void> make_event(Lanes& lanes, std::unique_ptr<LaneEvent>& event) {
  if (event) return {};
  auto made = lanes.make_event();
  if (!made) return std::unexpected(std::move(made).error());
  event = std::move(*made);
  return {};
}

Result<void> allocate(Lanes& lanes, LaneMemoryKind kind, std::size_t bytes,
                      std::unique_ptr<LaneMemory>& memory) {
  if (memory && memory->size() >= bytes) return {};
  memory.reset();
  auto made = lanes.allocate(kind, bytes);
  if (!made) return std::unexpected(std::move(made).error());
  memory = std::move(*made);
  return {};
}

}  // namespace

// ---- In -----------------------------------------------------------------------------------------

// Of a device that is lost nothing is on its way any more.
ArrivingTensors::~ArrivingTensors() {
  for (const Place& place : places_)
    for (LaneEvent* const event : {place.arrived.get(), place.used.get()})
      if (event != nullptr) static_cast<void>(lanes_.synchronize(*event));
}

Result<void> ArrivingTensors::make_room(Place& place, std::size_t bytes) {
  SWARMLINE_TRY(make_event(lanes_, place.arrived));
  SWARMLINE_TRY(make_event(lanes_, place.used));
  // The host's side is read until then.
  SWARMLINE_TRY(lanes_.synchronize(*place.arrived));
  // Both: where one had no room, the other may be left of an earlier tensor.
  const auto has_room = [bytes](const std::unique_ptr<LaneMemory>& side) {
    return side && side->size() >= bytes;
  };
  if (has_room(place.host) && has_room(place.device)) return {};
  SWARMLINE_TRY(lanes_.synchronize(*place.used));
  SWARMLINE_TRY(allocate(lanes_, LaneMemoryKind::kHost, bytes, place.host));
  return allocate(lanes_, LaneMemoryKind::kDevice, bytes, place.device);
}

Result<DeviceAddress> ArrivingTensors::bring(BytesView bytes) {
  Place& place = places_[next_];
  SWARMLINE_TRY(make_room(place, bytes.size()));
  copy_bytes(bytes, {place.host->data(), place.host->size()});
  SWARMLINE_TRY(lanes_.wait(Lane::kIn, *place.used));
  SWARMLINE_TRY(lanes_.copy(Lane::kIn, place.device->data(), place.host->data(), bytes.size()));
  SWARMLINE_TRY(lanes_.record(Lane::kIn, *place.arrived));
  SWARMLINE_TRY(lanes_.wait(Lane::kCompute, *place.arrived));
  return place.device->data();
}

Result<void> ArrivingTensors::used() {
  Place& place = places_[next_];
  next_ = (next_ + 1) % kArriving;
  return lanes_.record(Lane::kCompute, *place.used);
}

// ---- Out ----------------------------------------------------------------------------------------

LeavingTensors::LeavingTensors(Lanes& lanes, std::size_t places) : lanes_(lanes), count_(places) {
  SWARMLINE_CHECK(places >= 1 && places <= kLeaving);
}

LeavingTensors::~LeavingTensors() {
  for (const Place& place : places_)
    if (place.left) static_cast<void>(lanes_.synchronize(*place.left));
}

std::size_t LeavingTensors::take_place() {
  std::unique_lock lock(mutex_);
  given_back_.wait(lock, [this] { return !places_[next_].taken; });
  places_[next_].taken = true;
  return std::exchange(next_, (next_ + 1) % count_);
}

void LeavingTensors::give_back(std::size_t place) {
  {
    const std::lock_guard lock(mutex_);
    places_[place].taken = false;
  }
  given_back_.notify_one();
}

Result<void> LeavingTensors::make_room(Place& place, std::size_t bytes) {
  SWARMLINE_TRY(make_event(lanes_, place.made));
  SWARMLINE_TRY(make_event(lanes_, place.left));
  // One that was dropped may still be on its way.
  SWARMLINE_TRY(lanes_.synchronize(*place.left));
  SWARMLINE_TRY(allocate(lanes_, LaneMemoryKind::kHost, sizeof(double), place.number));
  SWARMLINE_TRY(allocate(lanes_, LaneMemoryKind::kHost, bytes, place.host));
  return allocate(lanes_, LaneMemoryKind::kDevice, bytes, place.device);
}

Result<std::unique_ptr<LeavingTensor>> LeavingTensors::claim(std::size_t bytes) {
  const std::size_t place = take_place();
  auto tensor = std::make_unique<LeavingTensor>(*this, place);
  SWARMLINE_TRY(make_room(places_[place], std::max<std::size_t>(bytes, 1)));
  return tensor;
}

LeavingTensor::~LeavingTensor() {
  ring_.give_back(place_);
}

DeviceAddress LeavingTensor::device() const {
  return ring_.places_[place_].device->data();
}

// The number is copied in the compute lane: its place there may be another's right behind it.
Result<void> LeavingTensor::leave(std::size_t bytes, const double* number) {
  LeavingTensors::Place& place = ring_.places_[place_];
  Lanes& lanes = ring_.lanes_;
  SWARMLINE_CHECK(bytes <= place.device->size());
  bytes_ = bytes;
  has_number_ = number != nullptr;
  if (has_number_)
    SWARMLINE_TRY(lanes.copy(Lane::kCompute, place.number->data(),
                             reinterpret_cast<const std::byte*>(number), sizeof(double)));
  SWARMLINE_TRY(lanes.record(Lane::kCompute, *place.made));
  SWARMLINE_TRY(lanes.wait(Lane::kOut, *place.made));
  if (bytes > 0)
    SWARMLINE_TRY(lanes.copy(Lane::kOut, place.host->data(), place.device->data(), bytes));
  return lanes.record(Lane::kOut, *place.left);
}

Result<void> LeavingTensor::made() {
  return ring_.lanes_.synchronize(*ring_.places_[place_].made);
}

Result<Buffer> LeavingTensor::wait() {
  const LeavingTensors::Place& place = ring_.places_[place_];
  SWARMLINE_TRY(ring_.lanes_.synchronize(*place.left));
  return Buffer::copy_of({place.host->data(), bytes_});
}

double LeavingTensor::number() const {
  double value = 0;
  if (has_number_) std::memcpy(&value, ring_.places_[place_].number->data(), sizeof value);
  return value;
}

}  // namespace swarmline::kernels
