// Links of peers whose payloads may go another way: how two ends come to it, where one has no such
// door (an older program has none), and what somebody says who keeps no rules.
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "base/byte_ops.h"
#include "engine/net/bulk/bulk_factory.h"
#include "engine/net/tcp/tcp_network.h"
#include "engine/runtime/asio_runtime.h"
#include "pipeline/stage/common/bulk_policy.h"
#include "pipeline/stage/common/peer_links.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kPayloadBytes = 200'000;

Seat seat_at(std::uint32_t peer) {
  return {PeerId{peer}, StageId{1}, Incarnation{1}};
}

class PeerTransports : public ::testing::Test {
 protected:
  struct End {
    End(AsioRuntime& runtime, Seat self, bool has_door)
        : seat(self),
          network(runtime, {}),
          door(has_door ? make_bulk_door(runtime, network) : nullptr),
          links(
              runtime, network, 10s,
              {.on_frame = [this](const Seat&, Frame frame) { heard.push_back(std::move(frame)); },
               .on_lost = [this](const Seat&, const Error& error) { lost.push_back(error); }},
              door.get()) {
      if (door) door->allow({.ways = {"shm"}, .trusted = {}});
      address = to_string(*links.listen({"127.0.0.1", 0}));
      links.set_identity(
          {.term = Term{1}, .era = Era{0}, .run_id = "run", .link_key = "key", .self = seat});
    }
    std::uint64_t sent_another_way() const { return door ? door->counters().payloads_sent : 0; }

    Seat seat;
    TcpNetwork network;
    std::unique_ptr<BulkDoor> door;
    std::vector<Frame> heard;
    std::vector<Error> lost;
    PeerLinks links;
    std::string address;
  };
  void begin(bool first_has_door, bool second_has_door) {
    first_ = std::make_unique<End>(runtime_, seat_at(1), first_has_door);
    second_ = std::make_unique<End>(runtime_, seat_at(2), second_has_door);
    first_->links.set_address(second_->seat, second_->address);
  }
  static void say(End& from, End& to, std::byte filler) {
    Buffer payload(kPayloadBytes);
    fill_bytes(payload.bytes(), filler);
    from.links.send(to.seat, {.kind = static_cast<std::uint16_t>(MessageKind::kForward),
                              .payload = {SharedBytes(std::move(payload))}});
  }
  // Each end says `count` payloads, one after the other.
  void exchange(int count) {
    for (int i = 0; i < count; ++i) {
      const std::size_t wanted = second_->heard.size() + 1;
      say(*first_, *second_, static_cast<std::byte>(i));
      ASSERT_TRUE(run_until([&] { return second_->heard.size() == wanted; }));
      say(*second_, *first_, static_cast<std::byte>(i));
      ASSERT_TRUE(run_until([&] { return first_->heard.size() == wanted; }));
      for (const End* const end : {first_.get(), second_.get()}) {
        const BytesView got = end->heard.back().received_payload();
        EXPECT_EQ(got.size(), kPayloadBytes);
        EXPECT_EQ(got[kPayloadBytes - 1], static_cast<std::byte>(i));
      }
    }
  }
  bool run_until(const std::function<bool()>& done) { return runtime_.run_until(done, 20s); }

  AsioRuntime runtime_;
  std::unique_ptr<End> first_, second_;
};

TEST_F(PeerTransports, WhereBothEndsHaveADoorPayloadsGoAnotherWay) {
  begin(true, true);
  exchange(20);
  EXPECT_GT(first_->sent_another_way(), 0U);
  EXPECT_GT(second_->sent_another_way(), 0U);
  EXPECT_EQ(first_->door->counters().links_made, 1U);
  EXPECT_TRUE(first_->lost.empty() && second_->lost.empty());
}

// What strangers may say is enough for a stream, and whoever takes it in has nothing left of it.
TEST_F(PeerTransports, SeveralConnectionsAreOneLinkToWhoeverUsesIt) {
  begin(true, true);
  RunConfig config;
  config.net.transport = Transport::kStreams;
  config.net.streams = 3;
  for (End* const end : {first_.get(), second_.get()}) end->door->allow(bulk_policy_of(config));
  exchange(20);
  for (const End* const end : {first_.get(), second_.get()}) {
    EXPECT_GT(end->sent_another_way(), 0U);
    EXPECT_EQ(end->links.count(), 1U);
    EXPECT_EQ(end->links.rejected_links(), 0U);
    EXPECT_TRUE(end->lost.empty());
  }
  EXPECT_EQ(second_->door->counters().streams_taken, 3U);
  EXPECT_EQ(second_->network.counters().accepted, 4U);
}

// By the bounds of mates a kind has room for a trial.
TEST_F(PeerTransports, WhereTheChoiceIsLeftEachEndMeasuresItOnce) {
  begin(true, true);
  RunConfig config;
  config.net.transport = Transport::kAuto;
  for (End* const end : {first_.get(), second_.get()}) {
    EXPECT_TRUE(bulk_policy_of(config).measures);
    end->door->allow(bulk_policy_of(config));
  }
  exchange(1);
  const auto measured = [this] {
    return first_->door->counters().links_measured == 1 &&
           second_->door->counters().links_measured == 1;
  };
  ASSERT_TRUE(run_until(measured));
  exchange(10);
  first_->links.disconnect(second_->seat, {ErrorCode::kCorrupt, "for this test"});
  ASSERT_TRUE(run_until([&] { return !second_->lost.empty(); }));
  exchange(1);
  ASSERT_TRUE(run_until([&] {
    return first_->door->counters().links_made == 2 && second_->door->counters().links_made == 2;
  }));
  exchange(10);
  EXPECT_TRUE(measured());
  for (const End* const end : {first_.get(), second_.get()}) {
    EXPECT_EQ(end->sent_another_way() > 0, end->door->counters().links_slower == 0);
  }
}

TEST_F(PeerTransports, WhoNamesAWayHasDecided) {
  for (const Transport named :
       {Transport::kTcp, Transport::kShm, Transport::kUcx, Transport::kStreams}) {
    RunConfig config;
    config.net.transport = named;
    EXPECT_FALSE(bulk_policy_of(config).measures);
  }
}

// A link that ended is made anew with the next, and so is its other way.
TEST_F(PeerTransports, ALinkThatIsMadeAgainHasAnotherWayAgain) {
  begin(true, true);
  exchange(10);
  first_->links.disconnect(second_->seat, {ErrorCode::kCorrupt, "for this test"});
  ASSERT_TRUE(run_until([&] { return !second_->lost.empty(); }));
  exchange(10);
  EXPECT_EQ(first_->door->counters().links_made, 2U);
  EXPECT_EQ(first_->door->counters().links_broken, 0U);
}

// As between programs of which one is older: its hello has an offer that the other one can't read,
// or none.
TEST_F(PeerTransports, WhereOneEndHasNoDoorPayloadsGoWithTheirFrames) {
  for (const bool first_has : {true, false}) {
    begin(first_has, !first_has);
    exchange(5);
    EXPECT_EQ(first_->sent_another_way() + second_->sent_another_way(), 0U);
    EXPECT_TRUE(first_->lost.empty() && second_->lost.empty());
    EXPECT_EQ(second_->links.rejected_links(), 0U);
  }
}

// Who is dialled says what nobody asked it, or bytes that are no answer.
TEST_F(PeerTransports, AnAnswerThatIsNoneEndsTheLink) {
  for (const bool offers : {true, false}) {
    begin(true, true);
    if (!offers) first_->door->allow({});
    TcpNetwork hostile(runtime_, {});
    std::shared_ptr<Connection> link;
    const auto address = hostile.listen({"127.0.0.1", 0}, [&](auto accepted) {
      link = std::move(accepted);
      link->start({.on_frame =
                       [&](const Frame&) {
                         wire::LinkAnswer answer;
                         answer.set_bulk(
                             encode(BulkOffer{.from = "",
                                              .to = "",
                                              .ways = {{.backend = offers ? "ucx" : "shm",
                                                        .address = "swarmline-00",
                                                        .secret = std::string(32, 's')}}}));
                         link->send(make_frame(MessageKind::kLinkAnswer, answer));
                       },
                   .on_closed = [](const Error&) {}});
    });
    first_->links.set_address(second_->seat, to_string(*address));
    say(*first_, *second_, std::byte{1});
    ASSERT_TRUE(run_until([&] { return !first_->lost.empty(); }));
    EXPECT_EQ(first_->lost.front().code, ErrorCode::kCorrupt) << first_->lost.front().what;
    link.reset();
  }
}

}  // namespace
}  // namespace swarmline
