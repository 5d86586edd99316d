// The guards of a run over real links: who gets to its coordinator, and which peers meet.
#include <filesystem>

#include <gtest/gtest.h>

#include "tests/admission/keyed_run.h"
#include "tests/harness/mark_expected.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

TEST_F(Guards, APeerComesByItsInviteAndTheRunKnowsItsKey) {
  Peer peer(runtime_, run_.join(run_.invite()));
  EXPECT_EQ(dial(peer.network, run_.address), "run");
  ASSERT_TRUE(runtime_.run_until([&] { return run_.links.size() == 1; }, 10s));
  EXPECT_EQ(run_.links[0]->admitted_as(), "peer");
  EXPECT_EQ(run_.links[0]->peer_key(), peer.key.hash());
}

TEST_F(Guards, AnInvitesScopeIsWhatItsLinkIsAdmittedAs) {
  for (const InviteScope scope : {InviteScope::kObserver, InviteScope::kAdmin}) {
    TcpNetwork tool(runtime_,
                    {.guard = std::make_shared<InviteGuard>(run_.join(run_.invite(scope)))});
    ASSERT_TRUE(lets_in(run_, tool));
    EXPECT_EQ(run_.links.back()->admitted_as(), to_string(scope));
  }
  TcpNetwork owner(runtime_, {.guard = std::make_shared<OwnerGuard>(run_.key)});
  ASSERT_TRUE(lets_in(run_, owner));
  EXPECT_EQ(run_.links.back()->admitted_as(), "run");
}

TEST_F(Guards, NobodyComesWithoutAnInviteThatIsGood) {
  const auto refused = [&](const JoinString& join) {
    Peer peer(runtime_, join);
    const auto answer = dial(peer.network, run_.address);
    EXPECT_FALSE(answer.has_value());
    return answer ? "admitted" : answer.error().what;
  };
  MarkExpected rule("guard.invite_refused");
  const Invite good = run_.invite();
  JoinString wrong = run_.join(good);
  wrong.secret[3] = static_cast<char>(wrong.secret[3] ^ 1);
  EXPECT_NE(refused(wrong).find("not one of this run"), std::string::npos);
  EXPECT_NE(refused(run_.join(make_invite(InviteScope::kPeer, 0, 1, 0))).find("not one of"),
            std::string::npos);
  EXPECT_NE(refused(run_.join(run_.invite(InviteScope::kPeer, -3600))).find("expired"),
            std::string::npos);
  const Invite once = run_.invite(InviteScope::kPeer, 1000, 1);
  Peer first(runtime_, run_.join(once));
  EXPECT_TRUE(lets_in(run_, first.network));
  EXPECT_NE(refused(run_.join(once)).find("was for 1"), std::string::npos);
  EXPECT_TRUE(lets_in(run_, first.network)) << "it came before";
  EXPECT_EQ(run_.links.size(), 2U);
}

TEST_F(Guards, WhoShowsItsSeatNeedsNoInviteAnyMore) {
  MarkExpected rule("guard.came_by_its_seat");
  Peer peer(runtime_, run_.join(run_.invite())), other(runtime_, run_.join(run_.invite()));
  seat(run_, peer, seat_of(1));
  ASSERT_TRUE(lets_in(run_, other.network));
  std::filesystem::remove(run_.folder.at("invites.jsonl"));
  EXPECT_TRUE(lets_in(run_, peer.network));
  EXPECT_EQ(run_.links.back()->admitted_as(), "peer");
  EXPECT_FALSE(dial(other.network, run_.address)) << "it has none";
  other.guard->take_certificate(run_.guard->certify("run-1", seat_of(1), peer.key.hash()));
  EXPECT_FALSE(dial(other.network, run_.address)) << "another's";
}

TEST_F(Guards, AKeyAloneIsNoInvite) {
  MarkExpected rule("guard.no_invite");
  // A peer of another run, which takes this one's address for a mate's.
  KeyedRun other(runtime_);
  Peer peer(runtime_, other.join(other.invite()));
  seat(other, peer, seat_of(1));
  const auto answer = dial(peer.network, run_.address);
  ASSERT_FALSE(answer.has_value());
  EXPECT_NE(answer.error().what.find("it has no invite"), std::string::npos) << answer.error().what;
  EXPECT_TRUE(run_.links.empty());
}

TEST_F(Guards, AnotherRunAtTheAddressHearsNothing) {
  KeyedRun other(runtime_);
  JoinString join = run_.join(run_.invite());
  join.addresses = {other.address};
  Peer peer(runtime_, join);
  const auto answer = dial(peer.network, other.address);
  ASSERT_FALSE(answer.has_value());
  EXPECT_EQ(answer.error().code, ErrorCode::kCorrupt);
  EXPECT_NE(answer.error().what.find("another run's"), std::string::npos) << answer.error().what;
}

TEST_F(Guards, SeatedPeersMeetAndKnowEachOthersSeats) {
  const JoinString join = run_.join(run_.invite());
  Peer a(runtime_, join), b(runtime_, join);
  seat(run_, a, seat_of(1));
  seat(run_, b, seat_of(2, 1));
  EXPECT_EQ(dial(a.network, b.address), to_string(seat_of(2, 1)));
  ASSERT_TRUE(runtime_.run_until([&] { return b.links.size() == 1; }, 10s));
  EXPECT_EQ(b.links[0]->admitted_as(), to_string(seat_of(1)));
  EXPECT_EQ(dial(run_.network, b.address), to_string(seat_of(2, 1))) << "the coordinator asks";
}

TEST_F(Guards, PeersMeetNobodyWithoutASeat) {
  const JoinString join = run_.join(run_.invite());
  Peer seated(runtime_, join), unseated(runtime_, join);
  seat(run_, seated, seat_of(1));
  ASSERT_TRUE(lets_in(run_, unseated.network));
  unseated.listen();
  EXPECT_FALSE(dial(unseated.network, seated.address)) << "it shows none";
  const auto early = dial(seated.network, unseated.address);
  ASSERT_FALSE(early.has_value());
  EXPECT_EQ(early.error().code, ErrorCode::kDeadline) << "it may have one soon";
  EXPECT_TRUE(seated.links.empty() && unseated.links.empty());
}

TEST_F(Guards, AnothersSeatIsNotShownByWhoHasNotItsKey) {
  MarkExpected rule("guard.no_seat_shown");
  const JoinString join = run_.join(run_.invite());
  Peer victim(runtime_, join), mate(runtime_, join), thief(runtime_, join);
  seat(run_, victim, seat_of(1));
  seat(run_, mate, seat_of(2));
  ASSERT_TRUE(lets_in(run_, thief.network));
  thief.guard->take_certificate(run_.guard->certify("run-1", seat_of(1), victim.key.hash()));
  const auto stolen = dial(thief.network, mate.address);
  ASSERT_FALSE(stolen.has_value());
  EXPECT_NE(stolen.error().what.find("another key's"), std::string::npos) << stolen.error().what;
  const Identity forger = Identity::make();
  RunGuard forged(RunKey{.identity = forger}, "run", to_invite_file(""), runtime_, run_.clerk);
  thief.guard->take_certificate(forged.certify("run-1", seat_of(3), thief.key.hash()));
  EXPECT_FALSE(dial(thief.network, mate.address));
  EXPECT_TRUE(mate.links.empty());
}

TEST_F(Guards, ASeatOfAnotherRunIsNone) {
  KeyedRun other(runtime_);
  Peer here(runtime_, run_.join(run_.invite())), there(runtime_, other.join(other.invite()));
  seat(run_, here, seat_of(1));
  seat(other, there, seat_of(2));
  EXPECT_FALSE(dial(there.network, here.address));
  EXPECT_FALSE(dial(here.network, there.address));
  EXPECT_TRUE(here.links.empty() && there.links.empty());
}

TEST_F(Guards, InvitesThatCanNotBeReadRefuseNobodyForGood) {
  const Invite invite = run_.invite();
  Peer peer(runtime_, run_.join(invite));
  std::filesystem::permissions(run_.folder.at("invites.jsonl"), std::filesystem::perms(0644));
  const auto answer = dial(peer.network, run_.address);
  ASSERT_FALSE(answer.has_value());
  EXPECT_EQ(answer.error().code, ErrorCode::kDeadline);
  std::filesystem::permissions(run_.folder.at("invites.jsonl"), std::filesystem::perms(0600));
  EXPECT_TRUE(lets_in(run_, peer.network));
}

}  // namespace
}  // namespace swarmline
