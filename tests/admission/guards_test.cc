// The guards of a run over real links: who gets to its coordinator, and which peers meet.
#include <memory>
#include <optional>

#include <gtest/gtest.h>

#include "engine/device/cpu_device.h"
#include "engine/identity/key_file.h"
#include "engine/net/tcp/tcp_network.h"
#include "engine/runtime/asio_runtime.h"
#include "engine/store/secret_file.h"
#include "node/admission/peer_guard.h"
#include "node/admission/run_guard.h"
#include "tests/harness/mark_expected.h"
#include "tests/store/temp_folder.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

struct KeyedRun {
  explicit KeyedRun(AsioRuntime& control)
      : runtime(control),
        guard(std::make_shared<RunGuard>(key, folder.at("invites.jsonl"), control, clerk)),
        network(control, {.guard = guard}) {
    const auto bound = network.listen({"127.0.0.1", 0}, [this](auto connection) {
      connection->start({.on_frame = [](Frame) {}, .on_closed = [](Error) {}});
      links.push_back(std::move(connection));
    });
    address = *bound;
  }
  Invite invite(InviteScope scope = InviteScope::kPeer, double life = 1000,
                std::uint64_t uses = 0) {
    Invite made = make_invite(scope, runtime.wall_seconds(), life, uses);
    EXPECT_TRUE(append_secret_line(folder.at("invites.jsonl"), kInviteFileBytesMax,
                                   [&](std::string_view) { return InviteBook::line_of(made); }));
    return made;
  }
  JoinString join(const Invite& by) const {
    return {.run = "run",
            .run_key = key.hash(),
            .invite_id = by.id,
            .secret = by.secret,
            .addresses = {address}};
  }

  AsioRuntime& runtime;
  TempFolder folder;
  Identity key = Identity::make();
  CpuDevice clerk{runtime, {.name = "invites", .queue_jobs_max = 64}};
  std::shared_ptr<RunGuard> guard;
  TcpNetwork network;
  Address address;
  std::vector<std::shared_ptr<Connection>> links;
};

class Guards : public ::testing::Test {
 protected:
  struct Peer {
    Peer(AsioRuntime& runtime, JoinString join, Identity own = Identity::make())
        : key(own),
          guard(std::make_shared<PeerGuard>(std::move(own), std::move(join), runtime)),
          network(runtime, {.guard = guard}) {}
    Identity key;
    std::shared_ptr<PeerGuard> guard;
    TcpNetwork network;
    Address address;
    std::vector<std::shared_ptr<Connection>> links;
    void listen() {
      address = *network.listen({"127.0.0.1", 0}, [this](auto connection) {
        connection->start({.on_frame = [](Frame) {}, .on_closed = [](Error) {}});
        links.push_back(std::move(connection));
      });
    }
  };

  // As what it was admitted by who was dialled; or why not.
  Result<std::string> dial(Network& network, const Address& address) {
    std::optional<Result<std::string>> answer;
    network.connect(address, 10s, [&](Result<std::shared_ptr<Connection>> made) {
      if (made) {
        (*made)->start({.on_frame = [](Frame) {}, .on_closed = [](Error) {}});
        kept_.push_back(*made);
      }
      answer = made ? Result<std::string>((*made)->admitted_as())
                    : Result<std::string>(std::unexpected(made.error()));
    });
    EXPECT_TRUE(runtime_.run_until([&] { return answer.has_value(); }, 20s));
    return *answer;
  }
  bool lets_in(KeyedRun& run, Network& network) {
    const std::size_t before = run.links.size();
    if (!dial(network, run.address)) return false;
    return runtime_.run_until([&] { return run.links.size() == before + 1; }, 10s);
  }
  // Seated, as far as links are concerned.
  void seat(KeyedRun& run, Peer& peer, const Seat& seat) {
    ASSERT_TRUE(lets_in(run, peer.network));
    peer.guard->take_certificate(run.guard->certify("run-1", seat, peer.key.hash()));
    peer.listen();
  }
  static Seat seat_of(std::uint32_t peer, std::uint16_t stage = 0) {
    return {PeerId{peer}, StageId{stage}, Incarnation{1}};
  }

  AsioRuntime runtime_;
  std::vector<std::shared_ptr<Connection>> kept_;
  KeyedRun run_{runtime_};
};

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
  RunGuard forged(forger, "", runtime_, run_.clerk);
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
