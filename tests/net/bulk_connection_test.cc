// Frames and their payloads go two ways, and arrive as if they had gone one.
#include "engine/net/bulk/bulk_connection.h"

#include <gtest/gtest.h>

#include "base/byte_ops.h"
#include "tests/net/bulk_ends.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

class BulkConnectionTest : public BulkEnds {};

class BulkConnectionSeeds : public BulkEnds, public ::testing::WithParamInterface<std::uint64_t> {
 protected:
  BulkConnectionSeeds() : BulkEnds(GetParam()) {}
};

// Both ends say frames of all sizes while the link is made, and at any time after.
TEST_P(BulkConnectionSeeds, FramesArriveInOrderWhicheverWayTheirPayloadsGo) {
  connect(false);
  Rng rng(GetParam() + 1000);
  std::vector<Frame> sent[2];
  for (std::uint16_t i = 0; i < 150; ++i) {
    if (i == 20)
      ASSERT_TRUE(
          client_.connection->take_answer(server_.connection->answer(client_.connection->offer()))
              .has_value());
    const std::size_t side = rng.below(2);
    SeenEnd& end = side == 0 ? client_ : server_;
    Frame frame = drawn_frame(rng, i);
    sent[side].push_back(frame);
    end.connection->send(std::move(frame));
    if (rng.below(3) == 0) run_for(Duration(static_cast<Duration::rep>(rng.below(2'000'000))));
  }
  ASSERT_TRUE(run_until([&] {
    return server_.frames.size() == sent[0].size() && client_.frames.size() == sent[1].size() &&
           client_.connection->unsent_bytes() == 0;  // it may arrive before its sender counts it
  }));
  for (std::size_t side = 0; side < 2; ++side) {
    const SeenEnd& end = side == 0 ? server_ : client_;
    for (std::size_t i = 0; i < sent[side].size(); ++i) {
      EXPECT_EQ(end.frames[i].kind, sent[side][i].kind);
      EXPECT_EQ(end.frames[i].meta, sent[side][i].meta);
      EXPECT_EQ(end.frames[i].flags, 0U);
      EXPECT_TRUE(
          same_bytes(end.frames[i].received_payload(), joined(sent[side][i].payload).view()));
    }
  }
  EXPECT_EQ(server_.connection->counters().bytes_received,
            client_.connection->counters().bytes_sent);
  EXPECT_GT(doors_[0]->counters().payloads_sent + doors_[1]->counters().payloads_sent, 20U);
}
INSTANTIATE_TEST_SUITE_P(Seeds, BulkConnectionSeeds,
                         ::testing::Range(std::uint64_t{1}, std::uint64_t{101}));

TEST_F(BulkConnectionTest, ATicketWithoutALinkEndsTheConnection) {
  connect(false);
  say_ticket({.payload_bytes = 1000, .number = 0, .hash = 0});
  expect_ended(ErrorCode::kCorrupt);
  EXPECT_EQ(doors_[1]->counters().bad_tickets, 1U);
}

TEST_F(BulkConnectionTest, ATicketBeyondTheRoomOfItsKindEndsTheConnection) {
  connect();
  say_ticket({.payload_bytes = 1001, .number = 0, .hash = 0}, 9);
  expect_ended(ErrorCode::kCorrupt);
}

TEST_F(BulkConnectionTest, ATicketOfNoBytesEndsTheConnection) {
  connect();
  say_ticket({.payload_bytes = 0, .number = 0, .hash = 0});
  expect_ended(ErrorCode::kCorrupt);
}

TEST_F(BulkConnectionTest, ATicketOutOfTurnEndsTheConnection) {
  connect();
  say_ticket({.payload_bytes = 100, .number = 1, .hash = 0});
  expect_ended(ErrorCode::kCorrupt);
}

TEST_F(BulkConnectionTest, ATicketOfAnotherSizeEndsTheConnection) {
  connect();
  client_.beneath->send(
      {.kind = 1, .flags = kFrameFlagBulk, .payload = {SharedBytes(Buffer::zeroed(23))}});
  expect_ended(ErrorCode::kCorrupt);
}

TEST_F(BulkConnectionTest, APayloadThatIsNotWhatWasAnnouncedEndsTheConnection) {
  connect();
  clients_link().spoils = true;
  client_.connection->send({.kind = 1, .payload = {SharedBytes(Buffer::zeroed(5000))}});
  expect_ended(ErrorCode::kCorrupt);
}

// The other end lives, says so, and never sends what it has announced.
TEST_F(BulkConnectionTest, APayloadThatDoesNotComeEndsTheConnection) {
  connect();
  clients_link().holds = true;
  client_.connection->send({.kind = 1, .payload = {SharedBytes(Buffer::zeroed(5000))}});
  run_for(59s);
  EXPECT_TRUE(server_.closed.empty());
  expect_ended(ErrorCode::kDeadline);
}

// ... and sends as much as it can behind it.
TEST_F(BulkConnectionTest, WhatWaitsBehindAPayloadIsBounded) {
  connect();
  clients_link().holds = true;
  say_ticket({.payload_bytes = 5000, .number = 0, .hash = 0});
  Frame large{
      .kind = 2, .meta = std::string(1000, 'm'), .payload = {SharedBytes(Buffer::zeroed(1 << 20))}};
  for (std::uint64_t i = 0; i <= kBulkWaitingBytesMax / kMiB; ++i) client_.beneath->send(large);
  expect_ended(ErrorCode::kCorrupt);
}

// An honest end waits with what is too much, and sends it when there is room again.
TEST_F(BulkConnectionTest, AnHonestEndSendsLittleAhead) {
  connect();
  clients_link().holds = true;
  client_.connection->send({.kind = 1, .payload = {SharedBytes(Buffer::zeroed(5000))}});
  for (std::uint64_t i = 0; i < 3 * kBulkAheadBytesMax / 1000; ++i)
    client_.connection->send({.kind = 2, .meta = std::string(1000, 'm')});
  EXPECT_LE(client_.connection->counters().bytes_sent, kBulkAheadBytesMax + 100'000);
  EXPECT_GT(client_.connection->unsent_bytes(), kBulkAheadBytesMax);
}

TEST_F(BulkConnectionTest, ALinkThatBreaksAloneTakesItsConnectionAlongAndIsNotTriedAgainAtOnce) {
  connect();
  servers_link().holds = clients_link().holds = true;
  client_.connection->send({.kind = 1, .payload = {SharedBytes(Buffer::zeroed(5000))}});
  run_for(10ms);
  clients_link().break_off(ErrorCode::kPeerGone);
  run_for(500ms);
  EXPECT_TRUE(client_.closed.empty());  // a process that is gone takes a moment, too
  ASSERT_TRUE(run_until([&] { return !client_.closed.empty(); }));
  EXPECT_EQ(client_.closed.front().code, ErrorCode::kPeerGone);
  connect(false);
  EXPECT_TRUE(client_.connection->offer().empty());
  run_for(61s);
  EXPECT_FALSE(client_.connection->offer().empty());
}

TEST_F(BulkConnectionTest, ALinkThatBreaksWithNothingOnItIsDoneWithout) {
  connect();
  clients_link().close();
  servers_link().break_off(ErrorCode::kPeerGone);
  clients_link().break_off(ErrorCode::kPeerGone);
  run_for(10ms);
  EXPECT_EQ(server_.connection->way(), "");
  server_.connection->send({.kind = 1, .payload = {SharedBytes(Buffer::zeroed(5000))}});
  ASSERT_TRUE(run_until([&] { return client_.frames.size() == 1; }));
  EXPECT_EQ(client_.frames.front().received_payload().size(), 5000U);
  EXPECT_TRUE(client_.closed.empty());
}

// Whoever passes bytes on, or translates addresses, stands between: payloads go its way, too.
TEST_F(BulkConnectionTest, NothingGoesPastWhoStandsBetween) {
  connect(false, "10.0.0.9:99");
  const std::string offer = client_.connection->offer();
  EXPECT_FALSE(offer.empty());
  EXPECT_TRUE(server_.connection->answer(offer).empty());
  client_.beneath->relayed = true;
  EXPECT_TRUE(client_.connection->offer().empty());
}

// What is said over such a link anybody on its way may have said.
TEST_F(BulkConnectionTest, NothingIsOfferedOrTakenWhereNoKeyWasShownBeyondThisMachine) {
  connect(false);
  const std::string offer = client_.connection->offer();
  EXPECT_FALSE(offer.empty());
  server_.beneath->key.reset();
  client_.beneath->key.reset();
  EXPECT_TRUE(client_.connection->offer().empty());
  EXPECT_TRUE(server_.connection->answer(offer).empty());
  const auto within = doors_[0]->over(std::make_shared<DelayedConnection>(
      delays_, Connection::Ends{.own = "10.0.0.1:11", .other = "10.0.0.1:22"}));
  EXPECT_FALSE(within->offer().empty());
}

// Who asked for the link is gone when it is made.
TEST_F(BulkConnectionTest, ALinkThatNobodyWantsAnyMoreIsClosed) {
  connect(false);
  const std::string answer = server_.connection->answer(client_.connection->offer());
  ASSERT_TRUE(client_.connection->take_answer(answer).has_value());
  client_.beneath->forget();
  client_.connection.reset();
  ASSERT_TRUE(run_until([&] { return links_.made.size() == 2; }));
  run_for(50ms);
  EXPECT_TRUE(clients_link().is_closed());
}

TEST_F(BulkConnectionTest, ADoorThatEndsLetsItsConnectionsGoWithoutAWord) {
  connect();
  const std::weak_ptr<BulkConnection> held = client_.connection;
  client_.connection.reset();
  EXPECT_FALSE(held.expired()) << "the connection beneath has it";
  doors_.clear();
  EXPECT_TRUE(server_.closed.empty());
  EXPECT_TRUE(clients_link().is_closed());
  client_.beneath->send({.kind = 1});
  run_for(50ms);
  EXPECT_TRUE(server_.frames.empty());
}

TEST_F(BulkConnectionTest, AnOfferThatIsNoneIsNothingAndAnAnswerThatIsNoneIsBad) {
  connect(false);
  EXPECT_TRUE(server_.connection->answer("\xff\xff\xff").empty());
  EXPECT_EQ(doors_[1]->counters().bad_tickets, 1U);
  EXPECT_FALSE(client_.connection->offer().empty());
  EXPECT_FALSE(client_.connection->take_answer("\xff").has_value());
  const BulkOffer other{
      .from = "10.0.0.2:22",
      .to = "10.0.0.1:11",
      .ways = {
          {.backend = "other", .address = "here", .secret = std::string(kBulkSecretBytes, 's')}}};
  const auto taken = client_.connection->take_answer(encode(other));
  ASSERT_FALSE(taken.has_value());
  EXPECT_EQ(taken.error().code, ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace swarmline
