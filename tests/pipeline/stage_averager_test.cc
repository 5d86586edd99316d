#include "pipeline/averaging/stage_averager.h"

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/byte_ops.h"
#include "pipeline/protocol/message_kinds.h"
#include "tests/harness/mark_expected.h"
#include "tests/pipeline/phases_and_seats.h"

namespace swarmline {
namespace {

class StageAveragerTest : public testing::Test {
 protected:
  static constexpr std::uint64_t kElements = 1000;

  struct Member {
    Seat seat;
    Buffer input = Buffer(kElements * sizeof(double)), output = Buffer(kElements * sizeof(double));
    std::unique_ptr<StageAverager> averager;
    int done = 0;
  };

  StageAveragerTest() {
    for (std::uint32_t i = 0; i < 3; ++i) {
      Member& member = members_[i];
      member.seat = seat_of(i + 1, 0);
      for (double& value : member.input.as<double>()) value = i + 1;
      member.averager = std::make_unique<StageAverager>(
          [this, i](const Seat& to, Frame frame) {
            if (leaves_at_once_) join_payload(frame);
            wire_.emplace_back(i, to.peer.value - 1, std::move(frame));
          },
          [this, i](const Seat& from, const Error&) { disconnected_.emplace_back(i, from); },
          [this, i](const Seat& to) { return in_memory_.contains({i, to.peer.value - 1}); });
    }
  }
  // As it arrives: one aligned part.
  static void join_payload(Frame& frame) {
    Buffer joined(frame.payload_bytes());
    MutableBytes at = joined.bytes();
    for (const SharedBytes& part : frame.payload) at = copy_bytes(part.view(), at);
    frame.payload.assign(1, SharedBytes(std::move(joined)));
  }
  // Member 0 speaks for member 1, too; member 2 for itself.
  Result<void> start_with_islands(std::uint32_t i) {
    StageAverager::Round round = round_of(i);
    round.islands = IslandRanks{.rank = i, .speakers = {0, 0, 2}};
    round.spec.rank = i / 2;
    round.spec.ranks = 2;
    round.spec.bounds = {0, 300, kElements};
    round.spec.scatter.assign(2, CodecSpec{});
    return members_[i].averager->start(std::move(round));
  }
  Result<void> start(std::uint32_t i) { return members_[i].averager->start(round_of(i)); }
  StageAverager::Round round_of(std::uint32_t i) {
    StageAverager::Round round;
    round.key = key_;
    for (const Member& member : members_) round.members.push_back(member.seat);
    round.spec = {.rank = i,
                  .ranks = 3,
                  .elements = kElements,
                  .dtype = DType::kF64,
                  .bounds = {0, 300, 301, kElements}};
    round.spec.scatter.assign(3, CodecSpec{});
    round.input = members_[i].input.bytes();
    round.output = members_[i].output.bytes();
    round.on_done = [this, i](std::uint64_t) {
      ++members_[i].done;
      if (on_done_) on_done_(i);
    };
    return round;
  }
  void deliver_all() {
    while (!wire_.empty()) {
      auto [from, to, frame] = std::move(wire_.front());
      wire_.pop_front();
      join_payload(frame);
      const auto taken = members_[to].averager->on_chunk(members_[from].seat, frame);
      EXPECT_TRUE(taken.has_value()) << taken.error().what;
    }
  }
  void expect_sums() {
    for (const Member& member : members_) {
      EXPECT_EQ(member.done, 1);
      for (const double value : member.output.as<double>()) ASSERT_EQ(value, 6);
    }
  }

  const RoundKey key_{.phase = train(3), .group = {}, .attempt = {}};
  std::array<Member, 3> members_;
  std::deque<std::tuple<std::uint32_t, std::uint32_t, Frame>> wire_;
  std::vector<std::pair<std::uint32_t, Seat>> disconnected_;
  bool leaves_at_once_ = true;  // what is sent; false: as it is delivered
  std::set<std::pair<std::uint32_t, std::uint32_t>> in_memory_;  // what goes from one to the other
  std::function<void(std::uint32_t)> on_done_;
};

TEST_F(StageAveragerTest, SumsAtEveryMember) {
  for (std::uint32_t i = 0; i < 3; ++i) ASSERT_TRUE(start(i).has_value());
  EXPECT_EQ(members_[0].averager->waiting_for(members_[1].seat).size(), 1U);
  deliver_all();
  expect_sums();
  EXPECT_FALSE(members_[0].averager->reducing());
  EXPECT_TRUE(members_[0].averager->waiting_for(members_[1].seat).empty());
}

TEST_F(StageAveragerTest, OneSpeaksForTwo) {
  for (std::uint32_t i = 0; i < 3; ++i) ASSERT_TRUE(start_with_islands(i).has_value());
  EXPECT_EQ(members_[0].averager->waiting_for(members_[1].seat).size(), 1U);
  EXPECT_EQ(members_[0].averager->waiting_for(members_[2].seat).size(), 1U);
  EXPECT_TRUE(members_[1].averager->waiting_for(members_[2].seat).empty());
  EXPECT_TRUE(members_[2].averager->waiting_for(members_[1].seat).empty());
  for (const auto& [from, to, frame] : wire_) EXPECT_FALSE(from + to == 3) << from << to;
  deliver_all();
  expect_sums();
}

// Its chunks come before it was told to seal, as any.
TEST_F(StageAveragerTest, ASpeakerThatBeginsLastHasWhatCameBefore) {
  ASSERT_TRUE(start_with_islands(1).has_value());
  ASSERT_TRUE(start_with_islands(2).has_value());
  deliver_all();
  ASSERT_TRUE(start_with_islands(0).has_value());
  deliver_all();
  expect_sums();
}

TEST_F(StageAveragerTest, WithinAnIslandNothingIsHashedTwice) {
  for (const std::uint32_t other : {1U, 2U}) {
    in_memory_.emplace(0, other);
    in_memory_.emplace(other, 0);
  }
  for (std::uint32_t i = 0; i < 3; ++i) ASSERT_TRUE(start_with_islands(i).has_value());
  while (!wire_.empty()) {
    auto [from, to, frame] = std::move(wire_.front());
    wire_.pop_front();
    join_payload(frame);
    EXPECT_FALSE(read_wire_header(frame.payload.front().view())->codec.checksums) << from << to;
    ASSERT_TRUE(members_[to].averager->on_chunk(members_[from].seat, frame).has_value());
  }
  expect_sums();
}

TEST_F(StageAveragerTest, IslandsOfOtherMembersAreRefused) {
  StageAverager::Round round = round_of(0);
  round.islands = IslandRanks{.rank = 0, .speakers = {0, 0}};
  const auto started = members_[0].averager->start(std::move(round));
  ASSERT_FALSE(started.has_value());
  EXPECT_EQ(started.error().code, ErrorCode::kIncompatible);
}

// Whoever has its sum may change what it has lent, though others wait for chunks of it.
TEST_F(StageAveragerTest, WhatHasNotLeftWhenASumIsDoneIsCopied) {
  leaves_at_once_ = false;
  std::size_t not_sent = 0;
  on_done_ = [&](std::uint32_t i) {
    not_sent += static_cast<std::size_t>(
        std::ranges::count_if(wire_, [i](const auto& sent) { return std::get<0>(sent) == i; }));
    Member& member = members_[i];
    for (const double value : member.output.as<double>()) ASSERT_EQ(value, 6);
    fill_bytes(member.input.bytes(), std::byte{0xEE});
    fill_bytes(member.output.bytes(), std::byte{0xEE});
  };
  for (std::uint32_t i = 0; i < 3; ++i) ASSERT_TRUE(start(i).has_value());
  // Member 0 hears all that is for it first.
  while (!wire_.empty()) {
    const auto first =
        std::ranges::find_if(wire_, [](auto& sent) { return std::get<1>(sent) == 0; });
    if (first != wire_.end()) std::rotate(wire_.begin(), first, first + 1);
    auto [from, to, frame] = std::move(wire_.front());
    wire_.pop_front();
    join_payload(frame);
    const auto taken = members_[to].averager->on_chunk(members_[from].seat, frame);
    ASSERT_TRUE(taken.has_value()) << taken.error().what;
  }
  for (const Member& member : members_) EXPECT_EQ(member.done, 1);
  EXPECT_GT(not_sent, 0U);
}

TEST_F(StageAveragerTest, WhatARoundHasLentIsCopiedWhenItIsGivenUp) {
  leaves_at_once_ = false;
  ASSERT_TRUE(start(0).has_value());
  ASSERT_FALSE(wire_.empty());
  members_[0].averager->abandon(key_.phase);
  fill_bytes(members_[0].input.bytes(), std::byte{0xEE});
  for (std::uint32_t i = 1; i < 3; ++i) ASSERT_TRUE(start(i).has_value());
  for (auto& [from, to, frame] : wire_) {
    join_payload(frame);
    std::vector<double> values(read_wire_header(frame.received_payload())->elements);
    ASSERT_TRUE(decode(frame.received_payload(), DType::kF64,
                       {reinterpret_cast<std::byte*>(values.data()), values.size() * 8}));
    for (const double value : values) EXPECT_EQ(value, from + 1);
  }
}

// Who shares memory with all others sends sums without checksums, too.
TEST_F(StageAveragerTest, ChecksumsAreLeftOutWhereMembersShareMemory) {
  in_memory_ = {{0, 1}, {1, 0}, {1, 2}};
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::set<bool>> scatters, gathers;
  for (std::uint32_t i = 0; i < 3; ++i) ASSERT_TRUE(start(i).has_value());
  while (!wire_.empty()) {
    auto [from, to, frame] = std::move(wire_.front());
    wire_.pop_front();
    const bool gather = parse<wire::ReduceChunk>(frame)->gather();
    (gather ? gathers : scatters)[{from, to}].insert(
        read_wire_header(frame.received_payload())->codec.checksums);
    const auto taken = members_[to].averager->on_chunk(members_[from].seat, frame);
    ASSERT_TRUE(taken.has_value()) << taken.error().what;
  }
  expect_sums();
  for (std::uint32_t from = 0; from < 3; ++from)
    for (std::uint32_t to = 0; to < 3; ++to) {
      if (from == to) continue;
      EXPECT_EQ((scatters[{from, to}]), (std::set{!in_memory_.contains({from, to})}));
      EXPECT_EQ((gathers[{from, to}]), (std::set{from != 1}));
    }
}

TEST_F(StageAveragerTest, ChunksBeforeTheSealWaitForIt) {
  ASSERT_TRUE(start(0).has_value());
  ASSERT_TRUE(start(1).has_value());
  deliver_all();
  ASSERT_TRUE(start(2).has_value());
  deliver_all();
  expect_sums();
}

// As one that comes later would: its sender is disconnected, and the receiver lives.
TEST_F(StageAveragerTest, AnEarlyChunkThatIsDamagedCostsItsSenderTheLink) {
  for (const std::uint32_t i : {1U, 2U}) ASSERT_TRUE(start(i).has_value());
  for (auto& [from, to, frame] : wire_)
    if (from == 1 && to == 0)
      frame.payload = {SharedBytes(Buffer::copy_of(frame.payload.front().view().first(9)))};
  deliver_all();
  ASSERT_TRUE(start(0).has_value());
  EXPECT_EQ(disconnected_, (std::vector{std::pair(0U, members_[1].seat)}));
  deliver_all();
  for (const Member& member : members_) EXPECT_EQ(member.done, 0);
}

TEST_F(StageAveragerTest, EarlyChunksOfStrangersDoNotSpoilTheRound) {
  wire::ReduceChunk chunk;
  *chunk.mutable_phase() = to_wire(train(3));
  const Frame frame =
      make_frame(MessageKind::kReduceChunk, chunk, {SharedBytes(Buffer::zeroed(100))});
  EXPECT_TRUE(members_[0].averager->on_chunk(seat_of(99, 0), frame).has_value());
  for (std::uint32_t i = 0; i < 3; ++i) ASSERT_TRUE(start(i).has_value());
  EXPECT_FALSE(members_[0].averager->on_chunk(seat_of(99, 0), frame).has_value())
      << "now it is known not to belong";
  deliver_all();
  expect_sums();
}

// Somebody else spoke first under a mate's name: the mate's own shows it, whichever is in the sum.
TEST_F(StageAveragerTest, AChunkThatComesTwiceIsNotASum) {
  for (const std::uint32_t i : {0U, 1U, 2U}) ASSERT_TRUE(start(i).has_value());
  const auto forged = std::get<2>(wire_.front());
  ASSERT_EQ(std::get<0>(wire_.front()), 0U);
  const MarkExpected mark("averager.two_speak_for_one");
  Member& reducer = members_[std::get<1>(wire_.front())];
  ASSERT_TRUE(reducer.averager->on_chunk(members_[0].seat, forged).has_value());
  const auto own = reducer.averager->on_chunk(members_[0].seat, std::get<2>(wire_.front()));
  ASSERT_FALSE(own.has_value());
  EXPECT_EQ(own.error().code, ErrorCode::kCorrupt) << "the link ends, and the round begins again";
}

TEST_F(StageAveragerTest, EarlyChunksAreBounded) {
  wire::ReduceChunk chunk;
  *chunk.mutable_phase() = to_wire(train(3));
  const Frame frame = make_frame(MessageKind::kReduceChunk, chunk);
  StageAverager& averager = *members_[0].averager;
  for (std::size_t i = 0; i < StageAverager::kEarlyChunksOfOneMax; ++i)
    ASSERT_TRUE(averager.on_chunk(members_[1].seat, frame).has_value());
  EXPECT_FALSE(averager.on_chunk(members_[1].seat, frame).has_value());
  EXPECT_TRUE(averager.on_chunk(members_[2].seat, frame).has_value());
  averager.retire(train(3));
  EXPECT_TRUE(averager.on_chunk(members_[1].seat, frame).has_value()) << "late ones are ignored";
  *chunk.mutable_phase() = to_wire(train(4));
  EXPECT_TRUE(averager.on_chunk(members_[1].seat, make_frame(MessageKind::kReduceChunk, chunk))
                  .has_value());
  *chunk.mutable_phase() = to_wire(eval(4));
  EXPECT_FALSE(averager.on_chunk(members_[1].seat, make_frame(MessageKind::kReduceChunk, chunk))
                   .has_value());
}

// What else waits for the control thread comes between the chunks of a round's beginning.
class StageAveragerInTurns : public testing::Test {
 protected:
  static constexpr std::uint64_t kElements = 40 * Limits::reduce_chunk_bytes / sizeof(double);
  static constexpr std::size_t kWindow = ButterflyAllReduce::window_chunks(2);

  void start() {
    StageAverager::Round round;
    round.key = {.phase = train(1)};
    round.members = {seat_of(1, 0), seat_of(2, 0)};
    round.spec = {.rank = 0,
                  .ranks = 2,
                  .elements = kElements,
                  .dtype = DType::kF64,
                  .bounds = {0, 0, kElements},  // the other one reduces all of it
                  .scatter = std::vector<CodecSpec>(2)};
    round.input = input_.bytes();
    round.output = output_.bytes();
    round.on_done = [](std::uint64_t) {};
    ASSERT_TRUE(averager_->start(std::move(round)).has_value());
  }
  void take_turns(std::size_t turns) {
    for (; turns > 0 && !later_.empty(); --turns) std::exchange(later_, {}).front()();
  }

  Buffer input_ = Buffer::zeroed(kElements * sizeof(double)), output_ = Buffer(input_.size());
  std::vector<std::function<void()>> later_;
  std::size_t sent_ = 0;
  std::unique_ptr<StageAverager> averager_ = std::make_unique<StageAverager>(
      [this](const Seat&, const Frame&) { ++sent_; }, [](const Seat&, const Error&) {},
      [](const Seat&) { return false; },
      [this](std::function<void()> call) { later_.push_back(std::move(call)); });
};

TEST_F(StageAveragerInTurns, EachTurnHandsOutOneChunkForAMember) {
  start();
  EXPECT_EQ(sent_, 1U);
  take_turns(3);
  EXPECT_EQ(sent_, 4U);
  take_turns(kWindow);
  EXPECT_EQ(sent_, kWindow);
  EXPECT_TRUE(later_.empty());
}

TEST_F(StageAveragerInTurns, ARoundThatIsGivenUpSendsNoMore) {
  start();
  averager_->abandon(train(1));
  take_turns(kWindow);
  EXPECT_EQ(sent_, 1U);
  EXPECT_TRUE(later_.empty());
}

TEST_F(StageAveragerInTurns, TurnsMayOutliveTheAverager) {
  start();
  averager_.reset();
  take_turns(kWindow);
  EXPECT_EQ(sent_, 1U);
}

}  // namespace
}  // namespace swarmline
