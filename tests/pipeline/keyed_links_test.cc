// Links of a peer whose ends are authenticated: what a guard has found out about the other end
// counts, and not what that says of itself.
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "engine/net/tcp/tcp_network.h"
#include "engine/runtime/asio_runtime.h"
#include "pipeline/coordinator/members/link_scope.h"
#include "pipeline/stage/common/peer_links.h"
#include "pipeline/stage/life/coordinator_link.h"
#include "tests/harness/mark_expected.h"
#include "tests/net/open_guard.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

Seat seat_of(std::uint32_t peer) {
  return {PeerId{peer}, StageId{1}, Incarnation{1}};
}

class KeyedLinks : public ::testing::Test {
 protected:
  struct End {
    End(AsioRuntime& runtime, Seat self)
        : seat(self),
          network(runtime, {.guard = guard}),
          links(runtime, network, 10s,
                {.on_frame = [this](const Seat& from, Frame) { heard.push_back(from); },
                 .on_lost = [this](const Seat&, const Error& error) { lost.push_back(error); }}) {
      address = to_string(*links.listen({"127.0.0.1", 0}));
      links.set_identity({.term = Term{1}, .era = Era{0}, .run_id = "run", .self = seat});
      guard->answers = to_string(seat);  // what it is, to who dials it
    }
    Seat seat;
    std::shared_ptr<OpenGuard> guard = std::make_shared<OpenGuard>();
    TcpNetwork network;
    std::vector<Seat> heard;
    std::vector<Error> lost;
    PeerLinks links;
    std::string address;
  };
  void credit() {
    a_.links.set_address(b_.seat, b_.address);
    a_.links.send(b_.seat, make_frame(MessageKind::kCredit, wire::Credit()));
  }
  bool run_until(const std::function<bool()>& done) { return runtime_.run_until(done, 20s); }

  AsioRuntime runtime_;
  End a_{runtime_, seat_of(1)}, b_{runtime_, seat_of(2)};
};

TEST_F(KeyedLinks, WhoIsThatSeatIsHeard) {
  b_.guard->takes_for = to_string(a_.seat);
  credit();
  ASSERT_TRUE(run_until([&] { return b_.heard.size() == 1; }));
  EXPECT_EQ(b_.heard[0], a_.seat);
}

TEST_F(KeyedLinks, WhoHasAnotherSeatThanItSaysIsClosedUnheard) {
  for (const char* taken_for : {"peer 3 (stage 1, incarnation 1)", "run", "observer"}) {
    const std::uint64_t before = b_.links.rejected_links();
    const std::size_t lost = a_.lost.size();
    b_.guard->takes_for = taken_for;
    credit();
    ASSERT_TRUE(run_until([&] { return a_.lost.size() == lost + 1; })) << taken_for;
    EXPECT_EQ(b_.links.rejected_links(), before + 1);
  }
  EXPECT_TRUE(b_.heard.empty());
}

TEST_F(KeyedLinks, NothingIsSaidToAnotherSeatAtThatAddress) {
  const MarkExpected rule("links.another_seat_answers");
  b_.guard->takes_for = to_string(a_.seat);
  b_.guard->answers = to_string(seat_of(9));
  credit();
  ASSERT_TRUE(run_until([&] { return a_.lost.size() == 1; }));
  EXPECT_NE(a_.lost[0].what.find("peer 9"), std::string::npos) << a_.lost[0].what;
  runtime_.run_until([] { return false; }, 30ms);
  EXPECT_TRUE(b_.heard.empty());
}

// Another peer of the run, at an address where a coordinator was.
TEST_F(KeyedLinks, APeerIsNoCoordinator) {
  const MarkExpected rule("link.no_coordinator_there");
  std::optional<std::string> ended;
  CoordinatorLink link(runtime_, a_.network,
                       {.hello = [] { return wire::Hello(); },
                        .on_welcome = [](const wire::Welcome&, bool) { FAIL(); },
                        .on_message = [](const Frame&) {},
                        .on_closed = [](const Error&) {},
                        .on_end = [&](int, const std::string& why) { ended = why; },
                        .heartbeat = [] { return wire::Heartbeat(); }});
  link.add_address(*parse_address(b_.address));
  link.set_patience(100ms);
  link.search("");
  link.connect();
  ASSERT_TRUE(run_until([&] { return ended.has_value(); }));
  EXPECT_NE(ended->find("another peer of the run"), std::string::npos) << *ended;
  EXPECT_TRUE(b_.heard.empty());
}

TEST_F(KeyedLinks, ARefusalEndsTheSearchAtOnce) {
  b_.guard->refusal = "its invite was revoked";
  std::optional<int> code;
  std::string sentence;
  CoordinatorLink link(runtime_, a_.network,
                       {.hello = [] { return wire::Hello(); },
                        .on_welcome = [](const wire::Welcome&, bool) {},
                        .on_message = [](const Frame&) {},
                        .on_closed = [](const Error&) {},
                        .on_end =
                            [&](int exit_code, const std::string& why) {
                              code = exit_code;
                              sentence = why;
                            },
                        .heartbeat = [] { return wire::Heartbeat(); }});
  link.add_address(*parse_address(b_.address));
  link.set_patience(1h);
  link.search("");
  link.connect();
  ASSERT_TRUE(run_until([&] { return code.has_value(); }));
  EXPECT_EQ(*code, 3);
  EXPECT_NE(sentence.find("revoked"), std::string::npos) << sentence;
}

TEST(LinkScope, EachMayAskForWhatItsInviteIsFor) {
  using enum MessageKind;
  for (const char* all : {"", "run", "admin"})
    for (const MessageKind kind : {kHello, kStatusRequest, kStopRequest, kClaim})
      EXPECT_TRUE(link_may_ask(all, kind)) << all;
  for (const std::string_view steers : {"run", "admin"}) EXPECT_TRUE(link_may_steer(steers));
  for (const std::string_view other : {"", "peer", "observer", "adminn"})
    EXPECT_FALSE(link_may_steer(other)) << other;
  EXPECT_TRUE(link_may_ask("peer", kHello));
  EXPECT_TRUE(link_may_ask("peer", kStatusRequest));
  EXPECT_FALSE(link_may_ask("peer", kStopRequest));
  EXPECT_FALSE(link_may_ask("peer", kCheckpointRequest));
  EXPECT_TRUE(link_may_ask("admin", kCheckpointRequest));
  EXPECT_TRUE(link_may_ask("observer", kStatusRequest));
  for (const MessageKind kind : {kHello, kStopRequest, kClaim, kCheckpointPiece}) {
    EXPECT_FALSE(link_may_ask("observer", kind));
    EXPECT_FALSE(link_may_ask("whatever else", kind));
  }
}

}  // namespace
}  // namespace swarmline
