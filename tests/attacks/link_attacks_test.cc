// Attacks on a peer's links by one that knows all names: over the links alone, without a stage.
#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "pipeline/protocol/seat_proof.h"
#include "pipeline/stage/common/peer_links.h"
#include "sim/doors/sim_runtime.h"
#include "tests/harness/mark_expected.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

const std::string kKey = "what members know";
const Seat kVictim{PeerId{1}, StageId{0}, Incarnation{1}};
const Seat kMate{PeerId{2}, StageId{0}, Incarnation{1}};

// A connection that somebody has made, from wherever the test says.
class MadeLink final : public Connection {
 public:
  explicit MadeLink(std::string remote) : remote_(std::move(remote)) {}
  void start(Handlers handlers) override { handlers_ = std::move(handlers); }
  void believe(const ConnectionBounds&) override { believed = true; }
  void send(Frame) override {}
  void close() override { closed = true; }
  std::uint64_t unsent_bytes() const override { return 0; }
  Counters counters() const override { return {}; }
  std::string remote() const override { return remote_; }

  void hears(const Frame& frame) {
    if (!closed) handlers_.on_frame(frame);
  }
  bool is_strangers() const { return handlers_.stranger.has_value() && !believed; }
  bool believed = false, closed = false;

 private:
  std::string remote_;
  Handlers handlers_;
};

class OpenDoor final : public Network {
 public:
  Result<Address> listen(const Address&, Accepted on_accepted) override {
    accepted = std::move(on_accepted);
    return Address{"10.0.0.1", 7400};
  }
  void connect(const Address&, Duration, Connected) override {}
  void meet(const Meeting&, Duration, Connected) override {}
  void stop_listening() override {}
  Accepted accepted;
};

class PeerLinksAttack : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(links_.listen({"10.0.0.1", 0}).has_value());
    links_.set_identity(
        {.term = Term{1}, .era = Era{0}, .run_id = "run", .link_key = kKey, .self = kVictim});
  }
  // Says that it is `from`, and then something.
  std::shared_ptr<MadeLink> link(const std::string& remote, const Seat& from,
                                 const std::string& key = kKey) {
    auto made = std::make_shared<MadeLink>(remote);
    door_.accepted(made);
    EXPECT_TRUE(made->is_strangers());
    wire::LinkHello hello;
    hello.set_term(1);
    hello.set_run_id("run");
    *hello.mutable_from() = to_wire(from);
    *hello.mutable_to() = to_wire(kVictim);
    if (!key.empty()) hello.set_proof(link_proof(key, hello));
    made->hears(make_frame(MessageKind::kLinkHello, hello));
    made->hears(make_frame(MessageKind::kCredit, wire::Credit()));
    return made;
  }

  SimRuntime clock_{1};
  OpenDoor door_;
  std::vector<Seat> heard_, replaced_;
  PeerLinks links_{clock_.node(1),
                   door_,
                   10s,
                   {.on_frame = [this](const Seat& from, Frame) { heard_.push_back(from); },
                    .on_lost = [](const Seat&, const Error&) {},
                    .on_replaced = [this](const Seat& seat) { replaced_.push_back(seat); }}};
};

TEST_F(PeerLinksAttack, WhoDoesNotKnowTheMembersKeyIsNotHeard) {
  EXPECT_TRUE(link("10.0.0.2:5000", kMate)->believed);
  EXPECT_EQ(heard_.size(), 1U);
  for (const std::string key : {"a guess", ""}) {
    const auto refused = link("10.0.0.3:5000", {PeerId{3}, StageId{0}, Incarnation{1}}, key);
    EXPECT_TRUE(refused->closed && refused->is_strangers());
  }
  EXPECT_EQ(heard_.size(), 1U);
  EXPECT_EQ(links_.rejected_links(), 2U);
}

TEST_F(PeerLinksAttack, AnotherHostDoesNotTakeALivingLinksPlace) {
  const auto own = link("10.0.0.2:5000", kMate);
  const MarkExpected mark("links.not_replaced");
  EXPECT_TRUE(link("10.0.0.3:5000", kMate)->closed);
  EXPECT_TRUE(link("10.0.0.3:5001", {kMate.peer, kMate.stage, Incarnation{2}})->closed)
      << "nor under an incarnation that is still to come";
  EXPECT_EQ(heard_.size(), 1U);
  EXPECT_FALSE(own->closed);
  EXPECT_TRUE(replaced_.empty());
}

TEST_F(PeerLinksAttack, TheSameHostMayDialAgainAndWhatWasOnItsWayIsDropped) {
  const auto before = link("10.0.0.2:5000", kMate);
  const MarkExpected mark("links.replaced");
  EXPECT_FALSE(link("10.0.0.2:5001", kMate)->closed) << "its link before may be lost unheard";
  EXPECT_TRUE(before->closed);
  EXPECT_EQ(replaced_, std::vector{kMate});
}

// The impostor was first; where the mate is known to be tells who is who.
TEST_F(PeerLinksAttack, WhoComesFromWhereTheSeatIsKnownToBeTakesItsPlace) {
  const auto impostor = link("10.0.0.3:5000", kMate);
  links_.set_address(kMate, "10.0.0.2:7401");
  EXPECT_FALSE(link("10.0.0.2:5000", kMate)->closed);
  EXPECT_TRUE(impostor->closed);
  EXPECT_EQ(replaced_, std::vector{kMate});
}

}  // namespace
}  // namespace swarmline
