// What holds of payloads whichever way they go: order, pressure, ends and what is left behind.
#include <algorithm>
#include <chrono>
#include <dirent.h>

#include "base/byte_ops.h"
#include "base/rng.h"
#include "tests/contract/link.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

class BulkContract : public BackendTest {
 protected:
  bool run_until(const std::function<bool()>& done, Duration limit = 60s) {
    return world_->run_until(done, limit);
  }
};

// Descriptors of this process: those of links that are over are closed.
std::size_t open_descriptors() {
  std::size_t count = 0;
  DIR* const folder = ::opendir("/proc/self/fd");
  while (::readdir(folder) != nullptr) ++count;
  ::closedir(folder);
  return count;
}

TEST_P(BulkContract, EverySizeArrivesInOrderAmongSmallFrames) {
  const auto link = make_link(*world_);
  Rng rng(17);
  std::vector<std::size_t> sizes = {0, 1, 24, 25, 63, 64, 65, 4095, 4096, 65'535, 65'536, 65'537};
  for (const std::size_t size : {1U << 20U, (1U << 20U) + 1, (2U << 20U) - 1, 5'000'003U})
    sizes.push_back(size);
  for (int i = 0; i < 40; ++i) sizes.push_back(rng.below(300'000));
  std::size_t sent = 0;
  for (const std::size_t size : sizes) {
    link->client.connection->send(make_frame(1, std::to_string(sent), {pattern(size, sent)}));
    ++sent;
    link->client.connection->send(make_frame(2, std::to_string(sent++)));
  }
  ASSERT_TRUE(run_until([&] { return link->server.frames.size() == sent; }));
  for (std::size_t i = 0; i < sent; ++i) {
    const Frame& frame = link->server.frames[i];
    EXPECT_EQ(frame.meta, std::to_string(i));
    EXPECT_EQ(frame.kind, 1 + i % 2);
    EXPECT_EQ(frame.flags, 0U);
    if (i % 2 == 0)
      EXPECT_TRUE(same_bytes(frame.received_payload(), pattern(sizes[i / 2], i).view()))
          << sizes[i / 2];
  }
}

TEST_P(BulkContract, BothWaysAtOnce) {
  const auto link = make_link(*world_);
  constexpr std::size_t kEach = 12, kBytes = 3'000'001;
  for (std::size_t i = 0; i < kEach; ++i) {
    link->client.connection->send(make_frame(1, "", {pattern(kBytes, i)}));
    link->server.connection->send(make_frame(2, "", {pattern(kBytes, 100 + i)}));
  }
  ASSERT_TRUE(run_until(
      [&] { return link->server.frames.size() == kEach && link->client.frames.size() == kEach; }));
  for (std::size_t i = 0; i < kEach; ++i) {
    EXPECT_TRUE(same_bytes(link->server.frames[i].received_payload(), pattern(kBytes, i).view()));
    EXPECT_TRUE(
        same_bytes(link->client.frames[i].received_payload(), pattern(kBytes, 100 + i).view()));
  }
}

// A reader that does not read holds its sender up, and takes little memory meanwhile.
TEST_P(BulkContract, ASlowReaderHoldsItsSenderUp) {
  const auto link = make_link(*world_, false);
  link->client.start();
  constexpr std::size_t kFrames = 24, kBytes = 4 << 20;
  const SharedBytes payload = pattern(kBytes, 3);
  for (std::size_t i = 0; i < kFrames; ++i)
    link->client.connection->send(make_frame(1, std::to_string(i), {payload}));
  world_->run_for(200ms);
  // Sockets' buffers and the rings between them are all that has left.
  EXPECT_GT(link->client.connection->unsent_bytes(), kFrames * kBytes / 2);
  link->server.start();
  ASSERT_TRUE(run_until([&] { return link->server.frames.size() == kFrames; }));
  for (const Frame& frame : link->server.frames)
    EXPECT_TRUE(same_bytes(frame.received_payload(), payload.view()));
  EXPECT_TRUE(run_until([&] { return link->client.connection->unsent_bytes() == 0; }));
}

// What waits behind a payload is bounded where it is sent, however many frames are.
TEST_P(BulkContract, ManySmallFramesBehindALargePayload) {
  const auto link = make_link(*world_, false);
  link->client.start();
  link->client.connection->send(make_frame(1, "", {pattern(8 << 20, 1)}));
  constexpr std::size_t kFrames = 3000;
  for (std::size_t i = 0; i < kFrames; ++i)
    link->client.connection->send(make_frame(2, std::string(10'000, 'm')));
  link->client.connection->send(make_frame(3, "", {pattern(100'000, 2)}));
  world_->run_for(50ms);
  link->server.start();
  ASSERT_TRUE(run_until([&] { return link->server.frames.size() == kFrames + 2; }));
  EXPECT_EQ(link->server.frames.front().kind, 1);
  EXPECT_EQ(link->server.frames.back().kind, 3);
  EXPECT_TRUE(
      same_bytes(link->server.frames.back().received_payload(), pattern(100'000, 2).view()));
}

TEST_P(BulkContract, WhatWasSentBeforeCloseArrives) {
  for (const std::size_t size : {100'000UL, 3'000'000UL, 20'000'000UL}) {
    const auto link = make_link(*world_);
    link->client.connection->send(make_frame(1, "", {pattern(size, 5)}));
    link->client.connection->send(make_frame(2, "last"));
    link->client.connection->close();
    ASSERT_TRUE(
        run_until([&] { return !link->client.closed.empty() && !link->server.closed.empty(); }));
    ASSERT_EQ(link->server.frames.size(), 2U) << size;
    EXPECT_TRUE(same_bytes(link->server.frames[0].received_payload(), pattern(size, 5).view()));
    EXPECT_EQ(link->client.closed[0].code, ErrorCode::kStopped);
    EXPECT_EQ(link->server.closed[0].code, ErrorCode::kPeerGone);
  }
}

// Half of a payload is none: the other end hears that its peer is gone, once.
TEST_P(BulkContract, APeerThatDiesInTheMiddleOfAPayload) {
  const auto link = make_link(*world_);
  bool dies = false;
  link->client.on_arriving = [&](const Arrival&) { dies = true; };
  link->server.connection->send(make_frame(1, "", {pattern(64 << 20, 1)}));
  ASSERT_TRUE(run_until([&] { return dies; }));
  link->server.connection.reset();
  world_->die(1);
  ASSERT_TRUE(run_until([&] { return !link->client.closed.empty(); }));
  world_->run_for(20ms);
  EXPECT_EQ(link->client.closed.size(), 1U);
  EXPECT_EQ(link->client.closed[0].code, ErrorCode::kPeerGone);
  EXPECT_TRUE(link->client.frames.empty());
}

// The receiver takes a payload back by closing: its sender's memory is free then.
TEST_P(BulkContract, APayloadIsCancelledByClosing) {
  const auto link = make_link(*world_);
  link->server.on_arriving = [&](const Arrival&) { link->server.connection->close(); };
  link->client.connection->send(make_frame(1, "", {pattern(64 << 20, 1)}));
  ASSERT_TRUE(
      run_until([&] { return !link->client.closed.empty() && !link->server.closed.empty(); }));
  EXPECT_EQ(link->client.connection->unsent_bytes(), 0U);
  EXPECT_TRUE(link->server.frames.empty());
}

// Parts of one payload lie anywhere, and may be empty.
TEST_P(BulkContract, PartsAreGathered) {
  const auto link = make_link(*world_);
  const SharedBytes whole = pattern(1'000'000, 3);
  std::vector<SharedBytes> parts = {SharedBytes()};
  std::size_t at = 0;
  for (std::size_t step = 1; at < whole.size(); step = step * 2 + 1) {
    const std::size_t size = std::min(step, whole.size() - at);
    parts.push_back(whole.slice(at, size));
    at += size;
  }
  parts.emplace_back();
  link->client.connection->send(make_frame(1, "", parts));
  ASSERT_TRUE(run_until([&] { return link->server.frames.size() == 1; }));
  EXPECT_TRUE(same_bytes(link->server.frames[0].received_payload(), whole.view()));
}

void open_and_close(World& world, std::size_t times) {
  std::size_t before = 0;
  constexpr std::size_t kAtATime = 50;
  for (std::size_t done = 0; done < times; done += kAtATime) {
    std::vector<std::unique_ptr<Link>> links;
    for (std::size_t i = 0; i < kAtATime; ++i) {
      links.push_back(make_link(world));
      links.back()->client.connection->send(make_frame(1, "", {pattern(100'000, i)}));
    }
    ASSERT_TRUE(world.run_until(
        [&] {
          return std::ranges::all_of(
              links, [](const auto& one) { return one->server.frames.size() == 1; });
        },
        60s));
    for (const auto& link : links) link->client.connection->close();
    ASSERT_TRUE(world.run_until(
        [&] {
          return std::ranges::all_of(links, [](const auto& one) {
            return !one->client.closed.empty() && !one->server.closed.empty();
          });
        },
        60s));
    links.clear();
    world.network(1).stop_listening();
    world.run_for(5ms);
    if (done == 0) before = open_descriptors();
  }
  // Who was told of its end closes a turn of the loop later: long, where others compute.
  EXPECT_TRUE(world.run_until([&] { return open_descriptors() <= before + 4; }, 10s))
      << open_descriptors() << " after " << before;
}

TEST_P(BulkContract, NothingIsLeftOfLinksThatAreOver) {
  open_and_close(*world_, 300);
}

using BulkContractSlow = BulkContract;

TEST_P(BulkContractSlow, TenThousandAreOpenedAndClosed) {
  open_and_close(*world_, 10'000);
}

// The largest that a frame may have, four times.
TEST_P(BulkContractSlow, FourGigabytes) {
  world_ = make_world(GetParam(), {.queue_bytes_max = 5ULL << 30U});
  const auto link = make_link(*world_);
  const SharedBytes payload = pattern(Limits::frame_payload_bytes_max, 9);
  for (int i = 0; i < 4; ++i) {
    link->client.connection->send(make_frame(1, "", {payload}));
    ASSERT_TRUE(run_until([&] { return link->server.frames.size() == 1; }, 300s));
    EXPECT_TRUE(same_bytes(link->server.frames.front().received_payload(), payload.view()));
    link->server.frames.clear();
  }
}

SWARMLINE_FOR_EVERY_WAY(BulkContract);
SWARMLINE_FOR_EVERY_WAY(BulkContractSlow);

}  // namespace
}  // namespace swarmline
