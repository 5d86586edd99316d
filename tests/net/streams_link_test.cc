// Payloads over several streams, in virtual time: each stream delays what it carries, by a seed.
#include "engine/net/streams/streams_link.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/byte_ops.h"
#include "base/rng.h"
#include "sim/doors/sim_runtime.h"
#include "tests/net/bulk_fakes.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

SharedBytes drawn_bytes(Rng& rng, std::size_t size) {
  Buffer buffer(size);
  for (std::size_t at = 0; at < size; at += sizeof(std::uint64_t)) {
    const std::uint64_t word = rng.below(~std::uint64_t{0});
    std::memcpy(buffer.data() + at, &word, std::min(sizeof(word), size - at));
  }
  return SharedBytes(std::move(buffer));
}

std::string number_as_meta(std::uint64_t number) {
  std::string meta(sizeof(number), '\0');
  std::memcpy(meta.data(), &number, sizeof(number));
  return meta;
}

struct LinkEnd {
  std::shared_ptr<StreamsLink> link;
  std::vector<Buffer> received;
  std::vector<std::uint64_t> arriving;  // bytes of the payload that is not whole
  std::size_t sent = 0;
  std::vector<Error> closed;

  void start() {
    link->start({.on_arriving = [this](std::uint64_t bytes) { arriving.push_back(bytes); },
                 .on_received =
                     [this](Buffer payload) {
                       arriving.clear();
                       received.push_back(std::move(payload));
                     },
                 .on_sent = [this] { ++sent; },
                 .on_closed = [this](Error error) { closed.push_back(std::move(error)); }});
  }
};

class StreamsLinkTest : public ::testing::Test {
 protected:
  explicit StreamsLinkTest(std::uint64_t seed = 1)
      : runtime_(seed), delays_{.runtime = runtime_.node(SimNodeId{1}), .rng = Rng(seed)} {}
  ~StreamsLinkTest() override {
    for (const auto& end : connections_) end->forget();
  }

  std::pair<std::shared_ptr<DelayedConnection>, std::shared_ptr<DelayedConnection>> pair() {
    const auto one = std::make_shared<DelayedConnection>(delays_, Connection::Ends{});
    const auto other = std::make_shared<DelayedConnection>(delays_, Connection::Ends{});
    one->join(other);
    other->join(one);
    connections_.insert(connections_.end(), {one, other});
    return {one, other};
  }
  void make(int streams) {
    near_.link = std::make_shared<StreamsLink>(delays_.runtime);
    far_.link = std::make_shared<StreamsLink>(delays_.runtime);
    for (int i = 0; i < streams; ++i) {
      const auto [one, other] = pair();
      near_.link->add(one, std::nullopt);
      far_.link->add(other, std::nullopt);
    }
    near_.start();
    far_.start();
  }
  bool run_until(const std::function<bool()>& done, Duration limit = 100s) {
    return runtime_.run_until(done, limit);
  }
  void run_for(Duration time) {
    bool over = false;
    delays_.runtime.call_after(time, [&over] { over = true; });
    EXPECT_TRUE(run_until([&over] { return over; }, time + 1s));
  }
  // The far end of one stream is somebody who keeps no rules.
  std::shared_ptr<DelayedConnection> make_with_stranger() {
    near_.link = std::make_shared<StreamsLink>(delays_.runtime);
    const auto [one, other] = pair();
    near_.link->add(one, std::nullopt);
    near_.start();
    other->start({.on_frame = [](const Frame&) {}, .on_closed = [](const Error&) {}});
    return other;
  }
  void expect_corrupt() {
    ASSERT_TRUE(run_until([this] { return !near_.closed.empty(); }));
    run_for(2s);
    ASSERT_EQ(near_.closed.size(), 1U);
    EXPECT_EQ(near_.closed[0].code, ErrorCode::kCorrupt) << near_.closed[0].what;
  }
  static Frame piece(std::uint64_t payload, std::uint64_t offset, std::size_t bytes) {
    return {.kind = 1,
            .request = payload,
            .meta = number_as_meta(offset),
            .payload = {SharedBytes(Buffer::zeroed(bytes))}};
  }

  SimRuntime runtime_;
  FakeDelays delays_;
  std::vector<std::shared_ptr<DelayedConnection>> connections_;
  LinkEnd near_, far_;
};

class StreamsLinkSeeds : public StreamsLinkTest, public ::testing::WithParamInterface<int> {
 protected:
  StreamsLinkSeeds() : StreamsLinkTest(static_cast<std::uint64_t>(GetParam())) {}
};

TEST_P(StreamsLinkSeeds, PayloadsArriveInOrderWhicheverStreamIsTheSlowest) {
  Rng rng(static_cast<std::uint64_t>(GetParam()) + 1000);
  make(2 + static_cast<int>(rng.below(5)));
  for (const auto& end : connections_) end->mib_takes = Duration(rng.below(20'000'000));
  std::vector<SharedBytes> payloads;
  for (int i = 0; i < 30; ++i)
    payloads.push_back(drawn_bytes(rng, 1 + rng.below(rng.below(2) == 0 ? 1000 : 1'500'000)));
  std::size_t sent = 0, asked = 0;
  while (far_.received.size() < payloads.size()) {
    if (sent < payloads.size() && rng.below(2) == 0) {
      const SharedBytes& whole = payloads[sent++];
      const std::size_t cut = rng.below(whole.size() + 1);
      near_.link->send({whole.slice(0, cut), whole.slice(cut, whole.size() - cut)});
    }
    if (asked < payloads.size() && rng.below(2) == 0)
      far_.link->receive(Buffer(payloads[asked++].size()));
    run_for(Duration(rng.below(3'000'000)));
    ASSERT_TRUE(near_.closed.empty() && far_.closed.empty());
  }
  for (std::size_t i = 0; i < payloads.size(); ++i)
    EXPECT_TRUE(same_bytes(far_.received[i].bytes(), payloads[i].view())) << i;
  EXPECT_TRUE(run_until([&] { return near_.sent == payloads.size(); }));
}

INSTANTIATE_TEST_SUITE_P(Seeds, StreamsLinkSeeds, ::testing::Range(1, 21));

TEST_F(StreamsLinkTest, BothWaysAtOnce) {
  make(4);
  Rng rng(3);
  const SharedBytes there = drawn_bytes(rng, 5'000'001), back = drawn_bytes(rng, 3'000'000);
  near_.link->send({there});
  far_.link->send({back});
  far_.link->receive(Buffer(there.size()));
  near_.link->receive(Buffer(back.size()));
  ASSERT_TRUE(run_until([&] { return far_.received.size() + near_.received.size() == 2; }));
  EXPECT_TRUE(same_bytes(far_.received[0].bytes(), there.view()));
  EXPECT_TRUE(same_bytes(near_.received[0].bytes(), back.view()));
}

// Each piece goes where least is on its way: a stream of a quarter of the rate does not hold the
// others up for longer than its share of the window takes.
TEST_F(StreamsLinkTest, ASlowStreamCarriesLess) {
  make(2);
  for (const auto& end : connections_) end->mib_takes = 10ms;
  connections_[0]->mib_takes = 40ms;
  constexpr std::size_t kPayloads = 200;
  for (std::size_t i = 0; i < kPayloads; ++i) {
    near_.link->send({SharedBytes(Buffer::zeroed(kMiB))});
    far_.link->receive(Buffer(kMiB));
  }
  ASSERT_TRUE(run_until([&] { return far_.received.size() == kPayloads; }));
  EXPECT_LT(3 * connections_[0]->counters().bytes_sent, connections_[2]->counters().bytes_sent);
}

// What nobody asks for waits at its sender, but for the window.
TEST_F(StreamsLinkTest, ASlowReaderHoldsItsSenderUp) {
  make(4);
  constexpr std::size_t kPayloads = 50;
  for (std::size_t i = 0; i < kPayloads; ++i)
    near_.link->send({SharedBytes(Buffer::zeroed(2 * kMiB))});
  run_for(10s);
  std::uint64_t came = 0;
  for (std::size_t i = 1; i < connections_.size(); i += 2)
    came += connections_[i]->counters().bytes_received;
  EXPECT_GT(came, kStreamsWindowBytes / 2);
  EXPECT_LT(came, kStreamsWindowBytes + kMiB);
  EXPECT_EQ(near_.sent, 0U);
  for (std::size_t i = 0; i < kPayloads; ++i) far_.link->receive(Buffer(2 * kMiB));
  EXPECT_TRUE(run_until([&] { return far_.received.size() == kPayloads; }));
  EXPECT_TRUE(run_until([&] { return near_.sent == kPayloads; }));
}

TEST_F(StreamsLinkTest, ManySmallPayloadsThatNobodyAsksForAreWithinTheBound) {
  make(2);
  constexpr std::size_t kPayloads = 3 * kStreamsPiecesMax;
  for (std::size_t i = 0; i < kPayloads; ++i) near_.link->send({SharedBytes(Buffer::zeroed(10))});
  run_for(10s);
  EXPECT_TRUE(far_.closed.empty());
  for (std::size_t i = 0; i < kPayloads; ++i) far_.link->receive(Buffer(10));
  EXPECT_TRUE(run_until([&] { return far_.received.size() == kPayloads; }));
}

TEST_F(StreamsLinkTest, WhatIsThereIsToldFromTheStartWithoutAGap) {
  make(2);
  connections_[2]->mib_takes = 500ms;  // every second piece is late
  Rng rng(4);
  const SharedBytes payload = drawn_bytes(rng, 2 * kMiB);
  far_.link->receive(Buffer(payload.size()));
  near_.link->send({payload});
  ASSERT_TRUE(run_until([&] { return !far_.arriving.empty(); }));
  EXPECT_EQ(far_.arriving.back(), kStreamPieceBytes);
  EXPECT_TRUE(run_until([&] { return far_.received.size() == 1; }));
}

TEST_F(StreamsLinkTest, WhatHasLeftBeforeTheOtherEndClosesArrives) {
  make(4);
  far_.link->receive(Buffer(3 * kMiB));
  near_.link->send({SharedBytes(Buffer::zeroed(3 * kMiB))});
  ASSERT_TRUE(run_until([&] { return near_.sent == 1; }));
  near_.link->close();
  ASSERT_TRUE(run_until([&] { return !far_.closed.empty(); }));
  EXPECT_EQ(far_.received.size(), 1U);
  EXPECT_EQ(far_.closed[0].code, ErrorCode::kPeerGone);
  EXPECT_TRUE(near_.closed.empty());
}

TEST_F(StreamsLinkTest, OneStreamThatEndsTakesTheLinkAlong) {
  make(4);
  const Instant began = delays_.runtime.now();
  connections_[0]->close();
  ASSERT_TRUE(run_until([&] { return !far_.closed.empty(); }));
  EXPECT_LT(delays_.runtime.now() - began, 2 * kStreamsEndTime);
  EXPECT_EQ(far_.closed[0].code, ErrorCode::kPeerGone);
  run_for(5s);
  EXPECT_EQ(far_.closed.size(), 1U);
  EXPECT_EQ(near_.closed.size(), 1U);
}

TEST_F(StreamsLinkTest, AStreamThatEndsBeforeTheLinkBeginsIsHeardOf) {
  near_.link = std::make_shared<StreamsLink>(delays_.runtime);
  const auto [one, other] = pair();
  near_.link->add(one, std::nullopt);
  other->start({.on_frame = [](const Frame&) {}, .on_closed = [](const Error&) {}});
  other->close();
  run_for(1s);
  near_.start();
  ASSERT_TRUE(run_until([&] { return !near_.closed.empty(); }));
  EXPECT_EQ(near_.closed[0].code, ErrorCode::kPeerGone);
}

TEST_F(StreamsLinkTest, WhatIsNoPieceEndsIt) {
  const std::vector<Frame> wrong = {
      {.kind = 3},                                  // a kind of nobody
      {.kind = 1, .request = 0, .meta = "offset"},  // no offset, no bytes
      piece(0, 1, 10),                              // not where a piece begins
      piece(0, kStreamPieceBytes, 10),              // not all that is left
      piece(0, 4 * kStreamPieceBytes, 10),          // beyond the payload
      piece(0, ~std::uint64_t{0} - 100, 10),        // far beyond
      piece(0, 0, kStreamPieceBytes - 1),           // not whole
      {.kind = 2, .meta = number_as_meta(10)},      // an answer to nothing
      {.kind = 2, .meta = "x"},                     // an answer that is none
  };
  for (const Frame& frame : wrong) {
    near_ = {};
    const auto stranger = make_with_stranger();
    near_.link->receive(Buffer(3 * kStreamPieceBytes));
    stranger->send(frame);
    expect_corrupt();
    EXPECT_TRUE(near_.received.empty());
  }
}

TEST_F(StreamsLinkTest, APieceThatComesTwiceEndsIt) {
  for (const std::uint64_t first : {0UL, 1UL}) {  // with, and without a gap before it
    near_ = {};
    const auto stranger = make_with_stranger();
    near_.link->receive(Buffer(3 * kStreamPieceBytes));
    for (int i = 0; i < 2; ++i)
      stranger->send(piece(0, first * kStreamPieceBytes, kStreamPieceBytes));
    expect_corrupt();
  }
}

TEST_F(StreamsLinkTest, APieceOfAPayloadThatIsOverEndsIt) {
  const auto stranger = make_with_stranger();
  near_.link->receive(Buffer(10));
  stranger->send(piece(0, 0, 10));
  ASSERT_TRUE(run_until([&] { return near_.received.size() == 1; }));
  stranger->send(piece(0, 0, 10));
  expect_corrupt();
}

// Whoever sends on without being asked takes no more memory than the window.
TEST_F(StreamsLinkTest, MoreThanTheWindowThatNobodyAskedForEndsIt) {
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{kStreamPieceBytes}}) {
    near_ = {};
    const auto stranger = make_with_stranger();
    for (std::size_t i = 0; i <= kStreamsPiecesMax; ++i) stranger->send(piece(i, 0, bytes));
    expect_corrupt();
  }
}

}  // namespace
}  // namespace swarmline
