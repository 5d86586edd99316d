// Tensors that cross beside what is computed: on lanes whose work is done as late, or in as strange
// an order, as events allow, each arrives whole, and nothing is freed that is still queued.

#include "kernels/tensor_lanes.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/byte_ops.h"
#include "base/check.h"
#include "base/rng.h"

namespace swarmline::kernels {
namespace {

// Lanes in this process: what is queued is done when somebody waits for it, or when it is drawn.
class QueuedLanes final : public Lanes {
 public:
  // `share`: how often something queued is done before it must be.
  QueuedLanes(std::uint64_t seed, double share) : rng_(seed), share_(share) {}
  ~QueuedLanes() override { EXPECT_TRUE(memories_.empty()) << "memory outlives its lanes"; }

  Result<std::unique_ptr<LaneMemory>> allocate(LaneMemoryKind kind, std::size_t bytes) override {
    if (full_ == kind) return fail(ErrorCode::kOutOfMemory, "no room");
    return std::make_unique<Memory>(*this, bytes);
  }
  // Memory of that kind has no room until the next call; null: all has.
  void set_full(std::optional<LaneMemoryKind> kind) { full_ = kind; }
  Result<std::unique_ptr<LaneEvent>> make_event() override {
    return std::make_unique<Event>(*this, events_.emplace(++last_event_, Times{}).first->first);
  }
  Result<void> copy(Lane lane, std::byte* to, const std::byte* from, std::size_t bytes) override {
    queue(lane, {.call = [=] { std::memmove(to, from, bytes); }, .touches = {to, from}});
    crossed_ += bytes;
    return {};
  }
  std::uint64_t crossed() const { return crossed_; }  // bytes over the bus
  // What the device computes.
  void compute(std::vector<const std::byte*> touches, std::function<void()> call) {
    queue(Lane::kCompute, {.call = std::move(call), .touches = std::move(touches)});
  }
  Result<void> record(Lane lane, LaneEvent& event) override {
    const int id = id_of(event);
    const int time = ++events_.at(id).recorded;
    events_.at(id).lane = lane;
    queue(lane, {.call = [this, id, time] { events_.at(id).passed = time; }});
    return {};
  }
  Result<void> wait(Lane lane, LaneEvent& event) override {
    const int id = id_of(event);
    queue(lane, {.waits_for = id, .time = events_.at(id).recorded});
    return {};
  }
  Result<void> synchronize(LaneEvent& event) override {
    const Times& times = events_.at(id_of(event));
    while (times.passed < times.recorded) do_next(times.lane);
    return {};
  }

 private:
  struct Times {
    int recorded = 0;
    int passed = 0;
    Lane lane = Lane::kCompute;  // where it was recorded last
  };
  struct Work {
    std::function<void()> call = nullptr;
    std::vector<const std::byte*> touches = {};
    int waits_for = 0;
    int time = 0;
  };
  class Memory final : public LaneMemory {
   public:
    Memory(QueuedLanes& lanes, std::size_t bytes)
        : lanes_(lanes), bytes_(std::max<std::size_t>(bytes, 1), std::byte{0xEE}) {
      lanes_.memories_[bytes_.data()] = bytes_.size();
    }
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;
    ~Memory() override { lanes_.freed(bytes_.data()); }
    std::byte* data() const override { return const_cast<std::byte*>(bytes_.data()); }
    std::size_t size() const override { return bytes_.size(); }

   private:
    QueuedLanes& lanes_;
    std::vector<std::byte> bytes_;
  };
  class Event final : public LaneEvent {
   public:
    Event(QueuedLanes& lanes, int id) : id(id), lanes_(lanes) {}
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;
    ~Event() override { lanes_.events_.erase(id); }
    const int id;

   private:
    QueuedLanes& lanes_;
  };

  static int id_of(LaneEvent& event) { return static_cast<Event&>(event).id; }
  std::deque<Work>& of(Lane lane) { return queued_[static_cast<std::size_t>(lane)]; }

  void queue(Lane lane, Work work) {
    of(lane).push_back(std::move(work));
    while (rng_.uniform() < share_) {
      const auto drawn = static_cast<Lane>(rng_.below(3));
      if (!of(drawn).empty()) do_next(drawn);
    }
  }
  // The first of a lane, after whatever it has to come after.
  void do_next(Lane lane) {
    SWARMLINE_CHECK_MSG(!of(lane).empty(), "an event that nobody records any more");
    const Work work = std::move(of(lane).front());
    of(lane).pop_front();
    if (work.waits_for != 0) {
      const Times& times = events_.at(work.waits_for);
      while (times.passed < work.time) do_next(times.lane);
    }
    if (work.call) work.call();
  }
  void freed(const std::byte* data) {
    const auto memory = memories_.find(data);
    for (const auto& lane : queued_)
      for (const Work& work : lane)
        for (const std::byte* touched : work.touches)
          EXPECT_FALSE(touched >= data && touched < data + memory->second) << "freed too early";
    memories_.erase(memory);
  }

  Rng rng_;
  const double share_;
  std::array<std::deque<Work>, 3> queued_;
  std::map<int, Times> events_;
  int last_event_ = 0;
  std::optional<LaneMemoryKind> full_;
  std::uint64_t crossed_ = 0;
  std::map<const std::byte*, std::size_t> memories_;
};

std::vector<std::byte> bytes_of(std::uint64_t index, std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(index * 31 + i * 7);
  return bytes;
}

// Is what the fake says true: nothing is there before somebody waits for it.
TEST(QueuedLanes, DoNothingByThemselves) {
  QueuedLanes lanes(1, 0);
  {
    const auto here = *lanes.allocate(LaneMemoryKind::kHost, 4);
    const auto there = *lanes.allocate(LaneMemoryKind::kDevice, 4);
    const auto event = *lanes.make_event();
    std::memset(here->data(), 5, 4);
    ASSERT_TRUE(lanes.copy(Lane::kIn, there->data(), here->data(), 4));
    ASSERT_TRUE(lanes.record(Lane::kIn, *event));
    EXPECT_NE(there->data()[3], std::byte{5});
    ASSERT_TRUE(lanes.synchronize(*event));
    EXPECT_EQ(there->data()[3], std::byte{5});
  }
}

// What waits for the compute lane does not wait for the way out.
TEST(LeavingTensor, IsMadeBeforeItHasLeft) {
  QueuedLanes lanes(1, 0);
  LeavingTensors leaving(lanes);
  const auto tensor = *leaving.claim(1);
  const DeviceAddress there = tensor->device();
  lanes.compute({there}, [there] { *there = std::byte{5}; });
  ASSERT_TRUE(tensor->leave(1, nullptr));
  EXPECT_NE(*there, std::byte{5});
  ASSERT_TRUE(tensor->made());
  EXPECT_EQ(*there, std::byte{5});
  *there = std::byte{6};
  EXPECT_EQ(tensor->wait()->bytes()[0], std::byte{6}) << "it has been copied already";
}

class TensorLanesTest : public ::testing::TestWithParam<double> {};

// A stage's passes: a tensor comes in, is read and its place overwritten there; one goes out with a
// number, and is waited for later, in order; or dropped.
TEST_P(TensorLanesTest, EachTensorCrossesWhole) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    QueuedLanes lanes(seed, GetParam());
    {
      ArrivingTensors arriving(lanes);
      LeavingTensors leaving(lanes);
      Rng rng(seed + 1000);
      struct Awaited {
        std::unique_ptr<LeavingTensor> tensor;
        std::uint64_t index;
        std::size_t size;
      };
      std::deque<Awaited> awaited;
      std::deque<double> numbers;  // in the device's memory until they are copied
      std::uint64_t arrived = 0, bytes = 0;
      const auto end_one = [&] {
        Awaited first = std::move(awaited.front());
        awaited.pop_front();
        if (rng.below(8) == 0) return;  // dropped
        const auto here = first.tensor->wait();
        ASSERT_TRUE(here);
        EXPECT_TRUE(same_bytes(here->bytes(), bytes_of(first.index, first.size)));
        EXPECT_EQ(first.tensor->number(), static_cast<double>(first.index));
      };
      for (std::uint64_t index = 0; index < 40; ++index) {
        const std::size_t in_size = rng.below(2000), out_size = rng.below(2000);
        bytes += in_size + out_size + sizeof(double);
        const auto incoming = bytes_of(index + 7, in_size);
        const auto place = arriving.bring(incoming);
        ASSERT_TRUE(place);
        lanes.compute({*place}, [at = *place, incoming, &arrived] {
          EXPECT_TRUE(std::equal(incoming.begin(), incoming.end(), at));
          std::fill_n(at, incoming.size(), std::byte{0xAB});
          ++arrived;
        });
        ASSERT_TRUE(arriving.used());

        if (awaited.size() == LeavingTensors::kLeaving) end_one();
        auto tensor = leaving.claim(out_size);
        ASSERT_TRUE(tensor);
        double& number = numbers.emplace_back(-1);
        lanes.compute({(*tensor)->device()},
                      [at = (*tensor)->device(), made = bytes_of(index, out_size), &number, index] {
                        std::ranges::copy(made, at);
                        number = static_cast<double>(index);
                      });
        ASSERT_TRUE((*tensor)->leave(out_size, &number));
        lanes.compute({}, [&number] { number = -2; });  // its place is another's now
        awaited.push_back({std::move(*tensor), index, out_size});
        while (!awaited.empty() && rng.below(2) == 0) end_one();
      }
      while (!awaited.empty()) end_one();
      const auto last = *lanes.make_event();
      ASSERT_TRUE(lanes.record(Lane::kCompute, *last));
      ASSERT_TRUE(lanes.synchronize(*last));
      EXPECT_EQ(arrived, 40U);
      EXPECT_EQ(lanes.crossed(), bytes) << "the tensors and a number each";
    }
  }
}

// A tensor that finds no room takes none of the room that smaller ones have afterwards.
TEST(TensorLanes, ATensorWithoutRoomLeavesAPlaceForSmallerOnes) {
  for (const LaneMemoryKind full : {LaneMemoryKind::kHost, LaneMemoryKind::kDevice}) {
    QueuedLanes lanes(1, 0);
    {
      ArrivingTensors arriving(lanes);
      LeavingTensors leaving(lanes, 1);
      const auto crosses = [&](std::size_t size) -> Result<void> {
        const auto bytes = bytes_of(size, size);
        const auto there = arriving.bring(bytes);
        if (!there) return std::unexpected(there.error());
        auto tensor = leaving.claim(size);
        if (!tensor) return std::unexpected(std::move(tensor).error());
        const DeviceAddress to = (*tensor)->device();
        lanes.compute({*there, to}, [=, from = *there] { std::copy_n(from, size, to); });
        SWARMLINE_TRY(arriving.used());
        SWARMLINE_TRY((*tensor)->leave(size, nullptr));
        const auto here = (*tensor)->wait();
        EXPECT_TRUE(here && std::ranges::equal(here->bytes(), bytes)) << size;
        return {};
      };
      for (std::size_t i = 0; i < ArrivingTensors::kArriving; ++i) ASSERT_TRUE(crosses(100));
      lanes.set_full(full);
      const auto refused = crosses(200);
      ASSERT_FALSE(refused);
      EXPECT_EQ(refused.error().code, ErrorCode::kOutOfMemory);
      lanes.set_full({});
      for (const std::size_t size : {50UL, 100UL, 200UL, 50UL}) ASSERT_TRUE(crosses(size));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(LateAndEarly, TensorLanesTest, ::testing::Values(0.0, 0.3, 0.7));

TEST(LeavingTensors, ClaimWaitsForAPlace) {
  for (const std::size_t places : {1UL, 2UL, LeavingTensors::kLeaving}) {
    QueuedLanes lanes(1, 0);
    LeavingTensors leaving(lanes, places);
    std::deque<std::unique_ptr<LeavingTensor>> claimed;
    for (std::size_t i = 0; i < places; ++i) claimed.push_back(std::move(*leaving.claim(8)));
    std::atomic<bool> dropped = false;
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      dropped = true;
      claimed.pop_front();
    });
    auto next = leaving.claim(8);
    EXPECT_TRUE(dropped) << places;
    other.join();
    EXPECT_TRUE(next);
  }
}

TEST(LeavingTensors, ANumberLeavesAlone) {
  QueuedLanes lanes(1, 0);
  {
    LeavingTensors leaving(lanes);
    double number = 2.5;
    auto tensor = leaving.claim(0);
    ASSERT_TRUE(tensor);
    ASSERT_TRUE((*tensor)->leave(0, &number));
    const auto here = (*tensor)->wait();
    ASSERT_TRUE(here);
    EXPECT_TRUE(here->empty());
    EXPECT_EQ((*tensor)->number(), 2.5);
  }
}

}  // namespace
}  // namespace swarmline::kernels
