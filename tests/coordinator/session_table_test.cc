#include "pipeline/coordinator/members/session_table.h"

#include <gtest/gtest.h>

#include "pipeline/coordinator/members/outbox.h"
#include "tests/coordinator/fake_session.h"

namespace swarmline {
namespace {

Seat seat_of(std::uint32_t peer, std::uint16_t stage = 0) {
  return {PeerId{peer}, StageId{stage}, Incarnation{1}};
}

TEST(SessionTable, KnowsWhoseConnectionIsWhose) {
  SessionTable sessions;
  const FakeSession tool, peer;
  sessions.add(tool.session);
  sessions.add(peer.session);
  sessions.seat(peer.session, seat_of(3));
  EXPECT_EQ(sessions.of(PeerId{3}), peer.session);
  EXPECT_EQ(sessions.of(PeerId{4}), nullptr);
  EXPECT_FALSE(tool.session->has_seat());
  EXPECT_EQ(sessions.bytes(), 30U);
  sessions.closed(tool.session);
  EXPECT_TRUE(tool.session->closed);
  EXPECT_EQ(sessions.bytes(), 30U) << "what it carried was carried";
  EXPECT_EQ(sessions.unseat(PeerId{3}), peer.session);
  EXPECT_EQ(sessions.unseat(PeerId{3}), nullptr);
  sessions.check_invariants();
}

TEST(SessionTable, KnowsWhoseConnectionsAreNobodys) {
  SessionTable sessions;
  const FakeSession idle, asks, peer;
  for (const FakeSession* session : {&idle, &asks, &peer}) sessions.add(session->session);
  sessions.seat(peer.session, seat_of(3));
  const Instant later = Instant{} + Limits::nobodys_link_idle_max + std::chrono::seconds(1);
  asks.session->heard = later;
  EXPECT_EQ(sessions.idle_without_seat(later), std::vector{idle.session});
}

TEST(SessionTable, ClosesAllWhenItGoes) {
  const FakeSession peer;
  {
    SessionTable sessions;
    sessions.add(peer.session);
  }
  EXPECT_TRUE(peer.channel->closed);
}

TEST(Outbox, HandsOverInOrderWhenItIsFlushed) {
  SessionTable sessions;
  const JournalProgress journal;
  Outbox outbox(sessions, journal);
  const FakeSession peer;
  sessions.add(peer.session);
  sessions.seat(peer.session, seat_of(3));
  bool answered = false;
  outbox.send(seat_of(3), make_frame(MessageKind::kOpenPhase, wire::OpenPhase()));
  outbox.respond([&](const Result<Frame>&) { answered = true; }, fail(ErrorCode::kRefused, "no"));
  outbox.send(seat_of(3), make_frame(MessageKind::kSeal, wire::Seal()));
  outbox.close(peer.session);
  outbox.send(seat_of(9), make_frame(MessageKind::kSeal, wire::Seal()));
  EXPECT_TRUE(peer.channel->said.empty());
  outbox.flush();
  EXPECT_EQ(peer.kinds(), (std::vector{MessageKind::kOpenPhase, MessageKind::kSeal}));
  EXPECT_TRUE(answered);
  EXPECT_TRUE(peer.channel->closed);
  EXPECT_TRUE(outbox.empty());
}

TEST(Outbox, WhatWasForASeatGoesToTheSessionThatHadItThen) {
  SessionTable sessions;
  const JournalProgress journal;
  Outbox outbox(sessions, journal);
  const FakeSession before;
  sessions.add(before.session);
  sessions.seat(before.session, seat_of(3));
  outbox.send(seat_of(3), make_frame(MessageKind::kSeal, wire::Seal()));
  sessions.unseat(PeerId{3});
  outbox.send(seat_of(3), make_frame(MessageKind::kCommit, wire::Commit()));
  outbox.flush();
  EXPECT_EQ(before.kinds(), std::vector{MessageKind::kSeal});
}

TEST(Outbox, WhatFollowsARecordWaitsUntilItIsDurable) {
  SessionTable sessions;
  JournalProgress journal{.given = 7, .durable = 7};
  Outbox outbox(sessions, journal);
  const FakeSession peer;
  sessions.add(peer.session);
  sessions.seat(peer.session, seat_of(3));
  outbox.send(seat_of(3), make_frame(MessageKind::kSeal, wire::Seal()));
  journal.given = 8;
  outbox.send(seat_of(3), make_frame(MessageKind::kCommit, wire::Commit()));
  outbox.close(peer.session);
  outbox.flush();
  EXPECT_EQ(peer.kinds(), std::vector{MessageKind::kSeal});
  EXPECT_FALSE(outbox.empty());
  journal.durable = 8;
  outbox.flush();
  EXPECT_EQ(peer.kinds(), (std::vector{MessageKind::kSeal, MessageKind::kCommit}));
  EXPECT_TRUE(peer.channel->closed);
}

TEST(Outbox, AShadowIsReachedThroughItsHost) {
  SessionTable sessions;
  const JournalProgress journal;
  Outbox outbox(sessions, journal);
  const FakeSession host;
  sessions.add(host.session);
  sessions.seat(host.session, seat_of(3, 0));
  wire::Commit commit;
  *commit.mutable_to() = to_wire(seat_of(3, 1));
  outbox.send(seat_of(3, 1), make_frame(MessageKind::kCommit, commit));
  outbox.flush();
  ASSERT_EQ(host.kinds(), std::vector{MessageKind::kCommit});
  EXPECT_EQ(addressee(host.channel->said[0]).value(), std::optional(seat_of(3, 1)));
}

}  // namespace
}  // namespace swarmline
