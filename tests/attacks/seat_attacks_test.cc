// Attacks of one that has a seat, or says it had one: it can't stop the run, take another's seat,
// or decide what others compute.
#include <limits>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "engine/identity/secrets.h"
#include "pipeline/protocol/protocol_version.h"
#include "pipeline/protocol/seat_proof.h"
#include "tests/attacks/attacker.h"
#include "tests/harness/mark_expected.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

RunConfig large_stages() {
  RunConfig config = attacked_run(2, 3);
  config.pipeline.peers = {3, 4};
  return config;
}

// One honest peer fewer than the stages want: the attacker's seat is one of them.
class SeatAttack : public SwarmUnderAttack {
 protected:
  SeatAttack() : SwarmUnderAttack(large_stages()) {
    options.admin_secret = std::string(kSecretBytes, 's');
  }
  // The attacker has a seat of the run that trains.
  void begin_with_a_seat() {
    begin();
    const auto welcome = insider.emplace(cluster()).join();
    ASSERT_TRUE(welcome.has_value());
    insider_seat = from_wire(welcome->seat());
  }
  template <typename Message>
  Message of(const Seat& seat) {
    Message message;
    *message.mutable_seat() = to_wire(seat);
    return message;
  }
  Seat victim() { return cluster().peer(0).seat(); }

  std::optional<Attacker> insider;
  Seat insider_seat;
};

TEST_F(SeatAttack, SteppedBeyondWhatIsCommittedCostsItsOwnSeat) {
  ASSERT_NO_FATAL_FAILURE(begin_with_a_seat());
  const MarkExpected mark("reign.stepped_beyond_what_is_committed");
  auto stepped = of<wire::Stepped>(insider_seat);
  stepped.set_version(1'000'000'000);
  insider->say(MessageKind::kStepped, stepped);
  expect_ends_well();
}

TEST_F(SeatAttack, UnderAnothersNameNothingIsHeard) {
  ASSERT_NO_FATAL_FAILURE(begin_with_a_seat());
  const Seat other = victim();
  auto stepped = of<wire::Stepped>(other);
  stepped.set_version(1'000'000'000);
  insider->say(MessageKind::kStepped, stepped);
  insider->say(MessageKind::kLeave, of<wire::Leave>(other));
  auto goodbye = of<wire::Goodbye>(other);
  goodbye.set_reason("gone");
  insider->say(MessageKind::kGoodbye, goodbye);
  insider->say(MessageKind::kSealMismatch, of<wire::SealMismatch>(other));
  cluster().runtime().run_for(50ms);
  EXPECT_TRUE(cluster().coordinator().serves(other));
  expect_ends_well();
}

TEST_F(SeatAttack, WhoDoesNotServeYetSaysNothingOfSteps) {
  ASSERT_NO_FATAL_FAILURE(begin_with_a_seat());
  const MarkExpected mark("reign.does_not_serve_yet");
  auto broken = of<wire::RoundBroken>(insider_seat);
  *broken.mutable_beyond() = to_wire(victim());
  insider->say(MessageKind::kRoundBroken, broken);
  insider->say(MessageKind::kComputeFailed, of<wire::ComputeFailed>(insider_seat));
  insider->say(MessageKind::kReport, of<wire::Report>(insider_seat));
  insider->say(MessageKind::kSealMismatch, of<wire::SealMismatch>(insider_seat));
  auto stall = of<wire::StallReport>(insider_seat);
  *stall.mutable_stalled() = to_wire(victim());
  for (int i = 0; i < 1000; ++i) insider->say(MessageKind::kStallReport, stall);
  expect_ends_well();
}

TEST_F(SeatAttack, AnothersSeatIsNotTakenByItsNameAndAddress) {
  begin();
  const Seat other = victim();
  const MarkExpected mark("arrivals.unproven_seat");
  for (const std::string& proof :
       {std::string(), std::string(32, 'x'), seat_proof("another key", other)}) {
    Attacker attacker(cluster());
    wire::Hello hello;
    *hello.mutable_previous() = to_wire(other);
    hello.set_name("sim-0");
    hello.set_address("sim:1");
    hello.set_run_id("simulated");
    hello.set_term(1);
    hello.set_seat_proof(proof);
    const auto welcome = attacker.join(hello);
    ASSERT_TRUE(welcome.has_value());
    EXPECT_NE(welcome->seat().peer(), other.peer.value) << "it is a newcomer";
    EXPECT_TRUE(cluster().coordinator().serves(other));
  }
  expect_ends_well();
}

// While a coordinator that was begun again collects, whoever knows a seat's address could go on in
// its place, with contributions that it never made.
TEST_F(SeatAttack, NobodyResumesAnothersSeatWhileTheCoordinatorCollects) {
  begin();
  const Seat other = victim();
  cluster().kill_coordinator();
  cluster().restart_coordinator();
  Attacker attacker(cluster());
  wire::Hello hello;
  *hello.mutable_previous() = to_wire(other);
  hello.set_name("sim-0");
  hello.set_address("sim:1");
  hello.set_run_id("simulated");
  hello.set_term(1);
  hello.mutable_holdings()->set_wanted(1);
  const auto welcome = attacker.join(hello);
  if (welcome) EXPECT_FALSE(welcome->resumed());
  expect_ends_well();
}

TEST_F(SeatAttack, NamesAndAddressesThatCanNotBePrintedAreRefusedWithASentence) {
  begin();
  const auto refused = [&](const wire::Hello& given) {
    Attacker attacker(cluster());
    wire::Hello hello = given;
    hello.set_protocol(kProtocolVersion);
    const auto answer = attacker.ask(MessageKind::kHello, hello);
    if (answer) return std::string("it was taken");
    cluster().run_until([&] { return attacker.was_closed(); }, 5s);
    return answer.error().what;
  };
  const MarkExpected mark("arrivals.refused");
  wire::Hello escapes;
  escapes.set_name("\x1b]0;owned\x07\x1b[2J");
  const std::string said = refused(escapes);
  EXPECT_NE(said.find("its name, \"\\x1b]0;owned\\x07"), std::string::npos) << said;
  wire::Hello line;
  line.set_address("a\nNov 21 09:30:01 [info] all is well");
  EXPECT_NE(refused(line).find("its address"), std::string::npos);
  wire::Hello bidi;
  bidi.set_device("\xe2\x80\xaegpu");
  EXPECT_NE(refused(bidi).find("its device"), std::string::npos);
  wire::Hello machine;
  machine.set_host("left\x1b[2J");
  EXPECT_NE(refused(machine).find("its host"), std::string::npos);
  wire::Hello card;
  card.mutable_gpu()->set_uuid("GPU-1\x1b[2J");
  EXPECT_NE(refused(card).find("its GPU"), std::string::npos);
  wire::Hello large;
  large.set_zone(std::string(Limits::name_bytes_max + 1, 'z'));
  EXPECT_NE(refused(large).find("at most 128 are taken"), std::string::npos);
  expect_ends_well();
}

// A budget counts what peers say they cost, and slices are cut by the bandwidth that they say they
// have: one number must not end the run.
TEST_F(SeatAttack, PricesAndBandwidthsThatNobodyHasAreRefused) {
  begin();
  const MarkExpected mark("arrivals.refused");
  const std::map<std::string, void (wire::Hello::*)(double)> numbers = {
      {"its price is ", &wire::Hello::set_price},
      {"its egress price is ", &wire::Hello::set_egress_price},
      {"its bandwidth is ", &wire::Hello::set_bandwidth}};
  for (const double number : {-1.0, 1e16, std::numeric_limits<double>::infinity(),
                              std::numeric_limits<double>::quiet_NaN()}) {
    for (const auto& [said, set] : numbers) {
      Attacker attacker(cluster());
      wire::Hello hello;
      hello.set_protocol(kProtocolVersion);
      (hello.*set)(number);
      const auto answer = attacker.ask(MessageKind::kHello, hello);
      ASSERT_FALSE(answer);
      EXPECT_TRUE(answer.error().what.contains(said)) << answer.error().what;
    }
  }
  expect_ends_well();
}

// Control characters in names made each status six times as long, until it was too long to send.
TEST_F(SeatAttack, AThousandHellosLeaveAStatusThatCanBeSent) {
  begin();
  for (int i = 0; i < 1000; ++i) {
    Attacker attacker(cluster());
    wire::Hello hello;
    hello.set_protocol(kProtocolVersion);
    hello.set_name(std::string(1024, '\x01'));
    hello.set_address(std::string(1024, '\x01'));
    attacker.ask(MessageKind::kHello, hello);
  }
  Attacker tool(cluster());
  const auto status = tool.ask(MessageKind::kStatusRequest, wire::StatusRequest());
  ASSERT_TRUE(status.has_value()) << status.error().what;
  EXPECT_LT(status->meta.size(), 64 * kKiB);
  expect_ends_well();
}

// ---- At a peer's door ---------------------------------------------------------------------------

class LinkAttack : public SeatAttack {
 protected:
  // Peers listen where their node's number says.
  Address door_of(std::size_t peer) {
    return {"sim", static_cast<std::uint16_t>(SimCluster::node_of_peer(peer))};
  }
  wire::LinkHello hello_of(const Seat& from, const Seat& to) {
    wire::LinkHello hello;
    hello.set_term(1);
    hello.set_run_id("simulated");
    *hello.mutable_from() = to_wire(from);
    *hello.mutable_to() = to_wire(to);
    return hello;
  }
};

TEST_F(LinkAttack, WithoutTheMembersKeyNoLinkIsTaken) {
  begin();
  for (const bool guesses : {false, true}) {
    Attacker attacker(cluster(), door_of(0));
    wire::LinkHello hello = hello_of(cluster().peer(1).seat(), victim());
    if (guesses) hello.set_proof(link_proof("a guess", hello));
    attacker.say(MessageKind::kLinkHello, hello);
    wire::PieceRequest request;
    *request.mutable_seat() = to_wire(cluster().peer(1).seat());
    *request.mutable_to() = to_wire(victim());
    request.mutable_blob()->set_state(0);
    attacker.say(MessageKind::kPieceRequest, request);
    cluster().run_until([&] { return attacker.was_closed(); }, 5s);
    EXPECT_TRUE(attacker.was_closed());
    EXPECT_TRUE(attacker.frames().empty()) << "nothing of the model";
  }
  expect_ends_well();
}

TEST_F(LinkAttack, AProofOfAnotherLinkIsNone) {
  begin();
  Attacker member(cluster());
  const auto welcome = member.join();
  ASSERT_TRUE(welcome.has_value());
  ASSERT_FALSE(welcome->link_key().empty());
  wire::LinkHello good = hello_of(from_wire(welcome->seat()), victim());
  good.set_proof(link_proof(welcome->link_key(), good));
  wire::LinkHello other = hello_of(cluster().peer(1).seat(), victim());
  other.set_proof(good.proof());
  Attacker attacker(cluster(), door_of(0));
  attacker.say(MessageKind::kLinkHello, other);
  cluster().run_until([&] { return attacker.was_closed(); }, 5s);
  EXPECT_TRUE(attacker.was_closed());
  expect_ends_well();
}

// A member of the run that speaks for others, for stages that are not its own.
TEST_F(LinkAttack, AMemberGetsNothingThatItsStageHasNoRightTo) {
  begin();
  Attacker member(cluster());
  const auto welcome = member.join();
  ASSERT_TRUE(welcome.has_value());
  const Seat own = from_wire(welcome->seat());
  std::size_t target = cluster().peers();
  for (std::size_t i = 0; i < cluster().peers(); ++i)
    if (cluster().peer(i).seat().stage != own.stage) target = i;
  ASSERT_LT(target, cluster().peers());
  const Seat to = cluster().peer(target).seat();
  const auto is_cut_off = [&](MessageKind kind, const auto& message,
                              std::vector<SharedBytes> payload = {}) {
    Attacker attacker(cluster(), door_of(target));
    wire::LinkHello hello = hello_of(own, to);
    hello.set_proof(link_proof(welcome->link_key(), hello));
    attacker.say(MessageKind::kLinkHello, hello);
    attacker.say(kind, message, std::move(payload));
    cluster().run_until([&] { return attacker.was_closed(); }, 5s);
    return attacker.was_closed();
  };
  {
    const MarkExpected mark("stage.asked_by_another_stage");
    wire::PieceRequest request;
    *request.mutable_seat() = to_wire(own);
    *request.mutable_to() = to_wire(to);
    request.mutable_blob()->set_stage(to.stage.value);
    request.mutable_blob()->set_state(1);
    EXPECT_TRUE(is_cut_off(MessageKind::kPieceRequest, request));
    *request.mutable_seat() = to_wire({own.peer, to.stage, Incarnation{99}});
    EXPECT_TRUE(is_cut_off(MessageKind::kPieceRequest, request)) << "under another name";
  }
  {
    const MarkExpected mark("gradients.chunk_of_another_stage");
    wire::ReduceChunk chunk;
    chunk.set_group(to.stage.value);
    EXPECT_TRUE(is_cut_off(MessageKind::kReduceChunk, chunk));
  }
  wire::Gradient gradient;
  if (own.stage.value != to.stage.value + 1U)
    EXPECT_TRUE(is_cut_off(MessageKind::kGradient, gradient));
  EXPECT_TRUE(
      is_cut_off(MessageKind::kForward, wire::Forward(), {SharedBytes(Buffer::zeroed(100))}));
  const MarkExpected no_room("sim.no_room");
  EXPECT_TRUE(is_cut_off(MessageKind::kCredit, wire::Credit(), {SharedBytes(Buffer::zeroed(1))}))
      << "a credit has no payload";
  expect_ends_well();
}

}  // namespace
}  // namespace swarmline
