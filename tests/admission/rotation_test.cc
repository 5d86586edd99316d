// A run's key that changes while peers are there or away, over real links; and who tries to use
// that.
#include <filesystem>

#include <gtest/gtest.h>

#include "node/admission/seat_certificate.h"
#include "tests/admission/keyed_run.h"
#include "tests/harness/mark_expected.h"

namespace swarmline {
namespace {

class Rotation : public Guards {
 protected:
  // As keys rotate and the coordinator's look do.
  void rotate(double overlap = 3600, double ago = 0) {
    auto next = rotated(run_.guard->key(), "run", runtime_.wall_seconds() - ago, overlap);
    ASSERT_TRUE(next.has_value()) << next.error().what;
    run_.guard->take_key(std::move(*next));
  }
  void certify(Peer& peer, const Seat& seat) {
    const std::string anew = run_.guard->certify_anew("run-1", seat, peer.key.hash());
    ASSERT_FALSE(anew.empty());
    peer.guard->take_certificate(anew);
    EXPECT_EQ(run_.guard->certify_anew("run-1", seat, peer.key.hash()), "") << "once";
  }
  std::string refusal(Network& network, const Address& address) {
    const auto answer = dial(network, address);
    return answer ? "admitted" : answer.error().what;
  }
  // Somebody at an address of the run, who shows that key and those words.
  struct Impostor final : LinkGuard {
    Impostor(Identity shown, std::string said) : own(std::move(shown)), words(std::move(said)) {}
    const Identity& identity() const override { return own; }
    std::string vouchers() const override { return words; }
    std::optional<KeyHash> pinned(const Address&) override { return std::nullopt; }
    std::string opening(const Address&, const LinkFacts&) override { return {}; }
    Result<std::string> judge(const Address&, const LinkFacts&, const std::string&) override {
      return std::string("taken in");
    }
    void admit(const LinkFacts&, const std::string&, Verdict verdict) override {
      ++heard;
      verdict(Admission{.as = "victim", .answer = {}});
    }
    Identity own;
    std::string words;
    int heard = 0;
  };
  struct Trap {
    Trap(AsioRuntime& runtime, const Identity& shown, const std::string& said)
        : guard(std::make_shared<Impostor>(shown, said)), network(runtime, {.guard = guard}) {
      address = *network.listen({"127.0.0.1", 0}, [](auto connection) {
        connection->start({.on_frame = [](Frame) {}, .on_closed = [](Error) {}});
        connection->close();
      });
    }
    std::shared_ptr<Impostor> guard;
    TcpNetwork network;
    Address address;
  };
  // Whether a peer that knows the run by `join` says a word to who shows that there.
  bool falls_for(JoinString join, const Identity& shown, const std::string& said) {
    Trap trap(runtime_, shown, said);
    join.addresses = {trap.address};
    Peer peer(runtime_, join);
    const bool taken = dial(peer.network, trap.address).has_value();
    EXPECT_EQ(taken, trap.guard->heard > 0);
    return taken;
  }
};

TEST_F(Rotation, APeerThatWasAwayFollowsAndComesByItsOldString) {
  const MarkExpected other_context("tls.shows_another_key");
  Peer before(runtime_, run_.join(run_.invite())), after(runtime_, run_.join(run_.invite()));
  ASSERT_TRUE(lets_in(run_, before.network));
  rotate();
  rotate();
  EXPECT_TRUE(lets_in(run_, before.network));
  EXPECT_TRUE(lets_in(run_, after.network)) << "a newcomer with an older string";
  EXPECT_EQ(run_.links.back()->admitted_as(), "peer");
}

TEST_F(Rotation, AToolWithAnOldStringFollowsToo) {
  const JoinString join = run_.join(run_.invite(InviteScope::kObserver));
  rotate();
  TcpNetwork tool(runtime_,
                  {.guard = std::make_shared<InviteGuard>(join, runtime_.wall_seconds())});
  EXPECT_TRUE(lets_in(run_, tool));
}

TEST_F(Rotation, SeatsOfBothKeysMeetWhileTheNewOnesCome) {
  const JoinString join = run_.join(run_.invite());
  Peer a(runtime_, join), b(runtime_, join);
  seat(run_, a, seat_of(1));
  seat(run_, b, seat_of(2));
  rotate();
  Peer c(runtime_, {.run = "run",
                    .run_key = run_.guard->identity().hash(),
                    .invite_id = join.invite_id,
                    .secret = join.secret,
                    .addresses = {run_.address}});
  seat(run_, c, seat_of(3));
  EXPECT_EQ(dial(a.network, b.address), to_string(seat_of(2))) << "both have the old one";
  EXPECT_EQ(dial(a.network, c.address), to_string(seat_of(3)));
  EXPECT_EQ(dial(c.network, b.address), to_string(seat_of(2))) << "it never met the old key";
  EXPECT_EQ(dial(run_.network, b.address), to_string(seat_of(2)));
  certify(a, seat_of(1));
  EXPECT_EQ(dial(a.network, b.address), to_string(seat_of(2)));
  EXPECT_EQ(dial(b.network, a.address), to_string(seat_of(1)));
  EXPECT_EQ(dial(c.network, a.address), to_string(seat_of(1)));
  ASSERT_TRUE(lets_in(run_, a.network));
  ASSERT_TRUE(lets_in(run_, b.network));
}

// A link begins with the run's key, and another one tells of the next before it is there: neither
// end is refused for good, and neither takes the other for anything.
TEST_F(Rotation, ALinkThatBeganWithTheKeyFromBeforeIsToComeAgain) {
  const MarkExpected meanwhile("guard.key_changed_meanwhile");
  Peer peer(runtime_, run_.join(run_.invite()));
  seat(run_, peer, seat_of(1));
  const auto not_yet_changed = std::make_shared<RunGuard>(
      run_.guard->key(), "run", to_invite_file(run_.folder.at("invites.jsonl")), runtime_,
      run_.clerk);
  TcpNetwork run_before(runtime_, {.guard = not_yet_changed});
  rotate();
  certify(peer, seat_of(1));
  const auto dialled_by_it = dial(run_before, peer.address);
  ASSERT_FALSE(dialled_by_it.has_value());
  EXPECT_EQ(dialled_by_it.error().code, ErrorCode::kDeadline) << dialled_by_it.error().what;
  const auto bound = run_before.listen({"127.0.0.1", 0}, [](auto connection) {
    connection->start({.on_frame = [](Frame) {}, .on_closed = [](Error) {}});
  });
  const auto dialled_to_it = dial(peer.network, *bound);
  ASSERT_FALSE(dialled_to_it.has_value());
  EXPECT_EQ(dialled_to_it.error().code, ErrorCode::kDeadline) << dialled_to_it.error().what;
  EXPECT_TRUE(lets_in(run_, peer.network));
}

// ---- Attacks ------------------------------------------------------------------------------------

TEST_F(Rotation, TheOldKeyIsNotTheRunsOwnerAnyMore) {
  rotate();
  TcpNetwork thief(runtime_, {.guard = std::make_shared<OwnerGuard>(run_.key)});
  EXPECT_FALSE(dial(thief, run_.address));
  OwnerGuard owner(run_.guard->identity());
  TcpNetwork knows(runtime_, {.guard = std::make_shared<OwnerGuard>(owner)});
  EXPECT_TRUE(lets_in(run_, knows));
  // As a guest who says nothing of whom it expects, too.
  Trap guest(runtime_, run_.key, "");
  EXPECT_NE(refusal(guest.network, run_.address).find("no invite"), std::string::npos);
}

TEST_F(Rotation, AnOldKeyIsWorthNothingAfterTheOverlap) {
  const JoinString old = run_.join(run_.invite());
  Peer member(runtime_, old);
  seat(run_, member, seat_of(1));
  const double over = 3600 + kClockSkewSeconds + 10;
  rotate(3600, over);
  certify(member, seat_of(1));
  // Who stayed away for longer needs the new string.
  Peer late(runtime_, old);
  const std::string why = refusal(late.network, run_.address);
  EXPECT_NE(why.find("join string is needed"), std::string::npos) << why;
  EXPECT_TRUE(run_.links.size() == 1) << "it is not heard";
  // A seat that the leaked key signs, shown to a member that has heard of the new one and to the
  // run.
  JoinString now = old;
  now.run_key = run_.guard->identity().hash();
  Peer fresh(runtime_, now), thief(runtime_, now);
  seat(run_, fresh, seat_of(2));
  ASSERT_TRUE(lets_in(run_, thief.network));
  const SeatCertificate forged{.run_id = "run-1",
                               .seat = seat_of(9),
                               .key = thief.key.hash(),
                               .expires = runtime_.wall_seconds() + 1000};
  thief.guard->take_certificate(to_text(forged, run_.key));
  EXPECT_NE(refusal(thief.network, fresh.address).find("not shown its seat"), std::string::npos);
  std::filesystem::remove(run_.folder.at("invites.jsonl"));
  EXPECT_FALSE(dial(thief.network, run_.address)) << "nor is it let in by that seat";
}

TEST_F(Rotation, AForgedHandoverIsNotFollowed) {
  const JoinString join = run_.join(run_.invite());
  const Identity forger = Identity::make();
  const double now = runtime_.wall_seconds();
  // Signed by itself; by the right key, but with other bytes; with nothing.
  EXPECT_FALSE(falls_for(join, forger, make_handover("run", forger, forger, now, 100).text));
  std::string changed = make_handover("run", run_.key, Identity::make(), now, 100).text;
  const std::string hers = to_hex(as_bytes(forger.public_key()));
  std::size_t at = 0;
  for (int lines = 0; lines < 3; ++lines) at = changed.find('\n', at) + 1;
  changed.replace(at, hers.size(), hers);
  EXPECT_FALSE(falls_for(join, forger, changed));
  EXPECT_FALSE(falls_for(join, forger, ""));
  // A true one, shown by who has not the key that it leads to.
  EXPECT_FALSE(
      falls_for(join, forger, make_handover("run", run_.key, Identity::make(), now, 100).text));
  EXPECT_TRUE(falls_for(join, forger, make_handover("run", run_.key, forger, now, 100).text))
      << "this test tells them apart";
}

TEST_F(Rotation, AHandoverOfAnotherRunIsNotFollowed) {
  const JoinString join = run_.join(run_.invite());
  const Identity other = Identity::make(), next = Identity::make();
  const double now = runtime_.wall_seconds();
  EXPECT_FALSE(falls_for(join, next, make_handover("run", other, next, now, 100).text));
  // Of a run that was begun with a copy of the same key.
  EXPECT_FALSE(falls_for(join, next, make_handover("copy", run_.key, next, now, 100).text));
}

TEST_F(Rotation, AHandoverThatIsOverIsNotFollowedNorOneForEver) {
  const JoinString join = run_.join(run_.invite());
  const Identity next = Identity::make();
  const double now = runtime_.wall_seconds();
  EXPECT_FALSE(falls_for(join, next, make_handover("run", run_.key, next, now - 1000, 900).text));
  EXPECT_FALSE(falls_for(
      join, next, make_handover("run", run_.key, next, now, kKeyOverlapMaxSeconds + 1).text));
}

TEST_F(Rotation, WhoHasFollowedIsNotLedAwayByTheLeakedKey) {
  const JoinString join = run_.join(run_.invite());
  Peer peer(runtime_, join);
  seat(run_, peer, seat_of(1));
  rotate();
  certify(peer, seat_of(1));
  const Identity thief = Identity::make();
  const std::string said =
      make_handover("run", run_.key, thief, runtime_.wall_seconds(), 1000).text;
  // It dials the peer as the run, and as a mate whose seat its own key has signed.
  Trap caller(runtime_, thief, said);
  EXPECT_FALSE(dial(caller.network, peer.address));
  Peer mate(runtime_, join);
  ASSERT_TRUE(lets_in(run_, mate.network));
  const SeatCertificate forged{.run_id = "run-1",
                               .seat = seat_of(9),
                               .key = mate.key.hash(),
                               .expires = runtime_.wall_seconds() + 1000};
  mate.guard->take_certificate(said + to_text(forged, thief));
  EXPECT_FALSE(dial(mate.network, peer.address));
  EXPECT_EQ(dial(run_.network, peer.address), to_string(seat_of(1))) << "the run finds it";
}

}  // namespace
}  // namespace swarmline
