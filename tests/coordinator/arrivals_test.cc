// Peers that say hello, without a coordinator and without a network.
#include "pipeline/coordinator/members/arrivals.h"

#include <memory>
#include <optional>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "pipeline/coordinator/members/gathering.h"
#include "pipeline/protocol/data_messages.h"
#include "pipeline/protocol/protocol_version.h"
#include "tests/coordinator/states_bench.h"
#include "tests/harness/mark_expected.h"

namespace swarmline {
namespace {

class Arriving : public ::testing::Test {
 protected:
  struct Caller {
    FakeSession connection;
    std::optional<Result<Frame>> answer;

    const SessionPtr& session() const { return connection.session; }
    wire::Welcome welcome() const {
      if (!answer || !*answer) return {};
      return *parse<wire::Welcome>(**answer);
    }
    std::string refusal() const {
      return answer && !*answer ? (*answer).error().what : "no refusal";
    }
    ErrorCode code() const { return (*answer).error().code; }
  };
  static wire::Hello hello_of(const std::string& name) {
    wire::Hello hello;
    hello.set_protocol(kProtocolVersion);
    hello.set_name(name);
    hello.set_address("host:" + name);
    return hello;
  }
  // As one that had the seat and comes back from where it was.
  wire::Hello hello_again(const Seat& seat) {
    wire::Hello hello = hello_of("");
    hello.set_address(bench.members.members().at(seat.peer).address);
    *hello.mutable_previous() = to_wire(seat);
    return hello;
  }
  void hear(const std::shared_ptr<Caller>& caller, const wire::Hello& hello) {
    arrivals.on_hello(caller->session(), make_frame(MessageKind::kHello, hello),
                      [caller](const Result<Frame>& answer) { caller->answer = answer; });
  }
  void settle() {
    if (arrivals.is_due()) arrivals.admit();
    bench.flush();
  }
  std::shared_ptr<Caller> say(const wire::Hello& hello) {
    auto caller = std::make_shared<Caller>();
    bench.sessions.add(caller->session());
    hear(caller, hello);
    settle();
    return caller;
  }

  StatesBench bench;
  RunIdentity identity{
      .run_id = "run", .term = Term{2}, .era = Era{1}, .config_toml = "the config"};
  bool cut_off = false, may_begin_again = true;
  EraBeginning beginning{bench.shape, bench.alarms, bench.outbox, bench.rulings};
  Gathering gathering{bench.shape,   bench.alarms, bench.events,
                      bench.members, bench.probe,  bench.rulings};
  FirstBits first_bits{bench.shape, bench.members, bench.audit,
                       gathering,   bench.events,  bench.rulings};
  Refusals refusals{bench.alarms, bench.events};
  RelayDesk relays{identity, bench.alarms, bench.outbox, bench.events};
  ReachDesk reach{{.network = bench.network.node(0),
                   .alarms = bench.alarms,
                   .sessions = bench.sessions,
                   .members = bench.members,
                   .relays = relays,
                   .outbox = bench.outbox,
                   .events = bench.events}};
  DataDesk data{nullptr, 2};
  Arrivals arrivals{{.shape = bench.shape,
                     .identity = identity,
                     .life = bench.life,
                     .sequence = bench.sequence,
                     .alarms = bench.alarms,
                     .journal = bench.journal,
                     .sessions = bench.sessions,
                     .members = bench.members,
                     .detector = bench.detector,
                     .recovery = bench.recovery,
                     .beginning = beginning,
                     .first_bits = first_bits,
                     .data = data,
                     .refusals = refusals,
                     .states = bench.states,
                     .takeovers = bench.takeovers,
                     .kept_heirs = bench.kept_heirs,
                     .relocation = bench.relocation,
                     .reach = reach,
                     .outbox = bench.outbox,
                     .events = bench.events,
                     .rulings = bench.rulings},
                    {.may_begin_again = [this] { return may_begin_again; },
                     .cut_off = [this](const Seat&) { return cut_off; }}};
};

TEST_F(Arriving, ANewcomerIsSeatedAndToldAllThatItNeeds) {
  const auto first = say(hello_of("a"));
  const wire::Welcome welcome = first->welcome();
  EXPECT_EQ(from_wire(welcome.seat()), (Seat{PeerId{1}, StageId{0}, Incarnation{1}}));
  EXPECT_EQ(first->session()->seat, from_wire(welcome.seat()));
  EXPECT_EQ(welcome.term(), 2U);
  EXPECT_EQ(welcome.era(), 1U);
  EXPECT_EQ(welcome.run_id(), "run");
  EXPECT_EQ(welcome.config_toml(), "the config");
  EXPECT_EQ(welcome.vocab(), 31U);
  ASSERT_EQ(welcome.cuts_size(), 2);
  EXPECT_EQ(welcome.cuts(1).last_layer(), 4U);
  EXPECT_FALSE(welcome.joining()) << "the run begins with it";
  EXPECT_EQ(bench.journal.read()->seats.at(0).state, "active");
  EXPECT_EQ(bench.journal.read()->seats.at(0).address, "host:a");
  EXPECT_FALSE(arrivals.is_due());
  bench.life.move_to(life::Training{});
  EXPECT_TRUE(say(hello_of("b"))->welcome().joining()) << "it fetches its stage's state";
  EXPECT_EQ(bench.journal.read()->seats.at(1).state, "joining");
}

TEST_F(Arriving, TheSeatIsBoundToTheKeyThatTheLinkHasProven) {
  KeyHash key;
  key.bytes.fill(0xab);
  const auto keyed = std::make_shared<Caller>();
  keyed->connection.channel->prove(key);
  bench.sessions.add(keyed->session());
  wire::Hello hello = hello_of("a");
  hello.set_key("a key that it only says it has");
  hear(keyed, hello);
  settle();
  const Seat seat = from_wire(keyed->welcome().seat());
  EXPECT_EQ(bench.members.at(seat.peer).key, to_string(key));
  EXPECT_EQ(bench.journal.read()->seats.at(0).key, to_string(key));
  EXPECT_EQ(keyed->welcome().seat_certificate(), "run, " + to_string(seat) + ", " + to_string(key));
  const auto plain = say(hello);
  EXPECT_EQ(bench.members.at(from_wire(plain->welcome().seat()).peer).key, "");
  EXPECT_EQ(plain->welcome().seat_certificate(), "");
  EXPECT_EQ(arrivals.certified_anew(keyed->session()), "anew in run, " + to_string(seat));
  EXPECT_EQ(arrivals.certified_anew(plain->session()), "");
}

TEST_F(Arriving, WhoHasAnotherKeyIsNoOldPeerOverANewConnection) {
  const auto honest = say(hello_of("a"));
  const auto thief = std::make_shared<Caller>();
  thief->connection.channel->prove(KeyHash{});
  bench.sessions.add(thief->session());
  wire::Hello hello = hello_of("a");
  *hello.mutable_previous() = honest->welcome().seat();
  hear(thief, hello);
  settle();
  EXPECT_NE(thief->welcome().seat().peer(), honest->welcome().seat().peer());
  EXPECT_TRUE(bench.members.is_current(from_wire(honest->welcome().seat())));
}

TEST_F(Arriving, WhoSpeaksAnotherProtocolOrSaysTooMuchIsRefusedWithTheReason) {
  const auto refusal_of = [&](std::uint32_t protocol) {
    wire::Hello other = hello_of("a\n");  // what it says besides is not looked at
    other.set_protocol(protocol);
    return say(other)->refusal();
  };
  const std::string install = "install the coordinator's version there";
  EXPECT_EQ(refusal_of(kProtocolVersion - 1),
            fmt::format("it speaks protocol {}, this run speaks {}: its swarmline is older than "
                        "the coordinator's; {}",
                        kProtocolVersion - 1, kProtocolVersion, install));
  EXPECT_EQ(refusal_of(kProtocolVersion + 1),
            fmt::format("it speaks protocol {}, this run speaks {}: its swarmline is newer than "
                        "the coordinator's; {}, or start the coordinator again with the newer one",
                        kProtocolVersion + 1, kProtocolVersion, install));
  EXPECT_TRUE(refusals.newest().starts_with("a newcomer \"a")) << refusals.newest();
  EXPECT_NE(refusals.newest().find(install), std::string::npos);
  wire::Hello long_name = hello_of(std::string(Limits::name_bytes_max + 1, 'x'));
  EXPECT_NE(say(long_name)->refusal().find("at most 128 are taken"), std::string::npos);
  const auto seated = say(hello_of("a"));
  seated->answer.reset();
  hear(seated, hello_of("b"));
  settle();
  EXPECT_EQ(seated->refusal(), "this connection has a seat already");
  EXPECT_EQ(bench.members.members().size(), 1U);
}

// Anybody may come, as often as it likes.
TEST_F(Arriving, RefusalsAreSoManyLinesASecond) {
  wire::Hello newer = hello_of("a");
  newer.set_protocol(kProtocolVersion + 1);
  for (std::uint32_t i = 0; i < Refusals::kLinesMax; ++i) say(newer);
  newer.set_name("b");
  for (int i = 0; i < 5; ++i) say(newer);
  EXPECT_NE(refusals.newest().find("\"a\""), std::string::npos);
  bench.clock.run_for(LineRate::kPeriod);
  say(newer);
  EXPECT_TRUE(refusals.newest().ends_with("(6 such)")) << refusals.newest();
  bench.flush();
  EXPECT_EQ(bench.journal.read()->seats.size(), 0U);
}

// ---- The run's data -----------------------------------------------------------------------------

class WithData : public Arriving {
 protected:
  static wire::Hello that_has(wire::Hello hello, const HeldData& held) {
    *hello.mutable_data() = to_wire(held);
    return hello;
  }
  StageId stage_of(const std::shared_ptr<Caller>& caller) const {
    return from_wire(caller->welcome().seat()).stage;
  }

  const std::string hash = std::string(64, '0');
  const std::shared_ptr<const DataManifest> manifest = std::make_shared<DataManifest>(
      DataManifest{.folder = "corpus",
                   .files = {{.name = "shard-0003.bin", .bytes = 8, .used = 8, .sha256 = hash}}});
  const HeldData same{.fingerprint = manifest->fingerprint()};
  const HeldData none{.fingerprint = manifest->fingerprint(), .lacks = "there is no file"};
  WithData() { data = DataDesk(manifest, 2); }
};

TEST_F(WithData, NobodyGetsASeatBeforeItIsKnownWhatItHas) {
  const MarkExpected asked("arrivals.asked_of_its_data");
  const auto fresh = say(hello_of("a"));
  ASSERT_TRUE(fresh->answer && *fresh->answer);
  ASSERT_EQ(kind_of(**fresh->answer), MessageKind::kDataWanted);
  EXPECT_EQ(*from_wire(*parse<wire::DataWanted>(**fresh->answer)), *manifest);
  EXPECT_FALSE(fresh->session()->has_seat());
  EXPECT_TRUE(bench.members.members().empty());
  // Of another list, say another run's.
  const auto other = say(that_has(hello_of("b"), {.fingerprint = "another"}));
  EXPECT_EQ(kind_of(**other->answer), MessageKind::kDataWanted);
  EXPECT_EQ(stage_of(say(that_has(hello_of("a"), same))), StageId{0});
}

TEST_F(WithData, WhoHasOtherFilesIsRefusedWithTheirName) {
  HeldData other = same;
  other.differs = "shard-0003.bin has another content";
  const MarkExpected differs("data_desk.differs");
  const auto caller = say(that_has(hello_of("a"), other));
  EXPECT_EQ(caller->code(), ErrorCode::kRefused);
  EXPECT_NE(caller->refusal().find("shard-0003.bin has another content"), std::string::npos);
  EXPECT_NE(refusals.newest().find("shard-0003.bin has another content"), std::string::npos);
  EXPECT_TRUE(bench.members.members().empty());
}

TEST_F(WithData, WhoHasNoneSitsWhereNoneIsRead) {
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(stage_of(say(that_has(hello_of("a"), none))), StageId{1}) << i;
  EXPECT_EQ(stage_of(say(that_has(hello_of("b"), same))), StageId{0});
  bench.life.move_to(life::Training{});
  wire::Hello sent = that_has(hello_of("c"), none);
  sent.mutable_kept()->set_stage(0);
  EXPECT_EQ(stage_of(say(sent)), StageId{1});
}

TEST_F(WithData, WhereTheOnlyStageReadsTheDataWhoHasNoneIsRefused) {
  data = DataDesk(manifest, 1);
  const MarkExpected alone("data_desk.no_stage_without");
  const auto caller = say(that_has(hello_of("a"), none));
  EXPECT_EQ(caller->code(), ErrorCode::kRefused);
  EXPECT_NE(caller->refusal().find("the run's only stage reads: there is no file"),
            std::string::npos)
      << caller->refusal();
}

// ---- Waiting ------------------------------------------------------------------------------------

TEST_F(Arriving, WhoComesWhileTheRunGoesBackHearsOfTheNewEra) {
  bench.life.move_to(life::RollingBack{"all were lost"});
  const MarkExpected waits("arrivals.waits");
  const auto caller = say(hello_of("a"));
  EXPECT_FALSE(caller->answer.has_value());
  EXPECT_FALSE(arrivals.is_due()) << "nothing is to be done until it is woken";
  identity.era = Era{2};
  bench.life.move_to(life::Forming{});
  arrivals.wake();
  settle();
  EXPECT_EQ(caller->welcome().era(), 2U);
}

TEST_F(Arriving, ANewConnectionEndsTheSeatBeforeItGetsAnother) {
  const Seat before = bench.seated(0);
  EXPECT_TRUE(say(hello_of("another"))->answer.has_value());
  EXPECT_FALSE(bench.rulings.any()) << "that was somebody else";
  const MarkExpected again("arrivals.over_a_new_connection");
  const auto caller = say(hello_again(before));
  EXPECT_FALSE(caller->answer.has_value()) << "its seat ends first";
  const auto losses = bench.rulings.take_losses();
  ASSERT_EQ(losses.size(), 1U);
  EXPECT_EQ(losses[0].seat, before);
  bench.lost(before);
  ASSERT_TRUE(arrivals.is_due());
  settle();
  const Seat after = from_wire(caller->welcome().seat());
  EXPECT_EQ(after.peer, before.peer);
  EXPECT_EQ(after.incarnation, Incarnation{2});
}

// Nobody has lost anything.
TEST_F(Arriving, ANewcomerOverANewConnectionJoinsAgain) {
  const MarkExpected again("arrivals.newcomer_over_a_new_connection");
  const Seat before = bench.seated(0);
  bench.life.move_to(life::Training{});
  for (const MemberState state : {MemberState::kBuilding, MemberState::kFollowing}) {
    bench.members.become(before.peer, state);
    EXPECT_FALSE(say(hello_again(before))->answer.has_value()) << "its seat ends first";
    const auto losses = bench.rulings.take_losses();
    ASSERT_EQ(losses.size(), 1U);
    EXPECT_EQ(losses[0].seat, before);
    EXPECT_EQ(losses[0].how, Departure::kMoves);
  }
}

TEST_F(Arriving, TheLastOfItsStageOverANewConnectionMeansThatLinksBroke) {
  const Seat last = bench.seated(0);
  cut_off = true;
  const auto caller = say(hello_again(last));
  EXPECT_TRUE(bench.rulings.take_losses().empty()) << "its stage's state would be gone";
  const auto restart = bench.rulings.take_self_restart();
  ASSERT_TRUE(restart.has_value());
  EXPECT_NE(restart->why.find("the last of its stage"), std::string::npos);
  EXPECT_TRUE(caller->connection.channel->closed);
  ASSERT_TRUE(caller->answer.has_value());
  EXPECT_EQ(caller->code(), ErrorCode::kPeerGone) << "one that is refused ends, with its state";
  EXPECT_TRUE(bench.members.serves(last));
}

// It gave up on a coordinator that did not acknowledge anything, and so will others.
TEST_F(Arriving, OverANewConnectionAfterADeafTimeMeansThatThisEndWasCutOff) {
  const Seat first = bench.seated(0), second = bench.seated(0);
  const auto hear_from = [&](const Seat& seat) { bench.detector.heard(seat, bench.alarms.now()); };
  for (const Seat& seat : {first, second}) {
    bench.detector.watch(seat, bench.alarms.now());
    hear_from(seat);
  }
  bench.clock.run_for(bench.detector.silence_allowed() + std::chrono::milliseconds(1));
  hear_from(second);  // what it sent meanwhile comes first
  const MarkExpected deaf("arrivals.after_a_deaf_time");
  EXPECT_EQ(say(hello_again(first))->code(), ErrorCode::kPeerGone);
  EXPECT_TRUE(bench.rulings.take_losses().empty());
  const auto restart = bench.rulings.take_self_restart();
  ASSERT_TRUE(restart.has_value());
  EXPECT_TRUE(restart->heard_nobody) << "others may come twice";
  may_begin_again = false;
  say(hello_again(first));
  EXPECT_EQ(bench.rulings.take_losses().size(), 1U) << "it can't begin again once more";
}

TEST_F(Arriving, NoMoreWaitThanMayBePeersAndTheNextComesAgain) {
  const MarkExpected too_many("arrivals.too_many");
  const auto first = std::make_shared<Caller>(), next = std::make_shared<Caller>();
  bench.sessions.add(first->session());
  for (std::size_t i = 0; i < Arrivals::kHellosMax; ++i) hear(first, hello_of("first"));
  bench.sessions.add(next->session());
  hear(next, hello_of("next"));
  bench.flush();
  ASSERT_TRUE(next->answer.has_value());
  EXPECT_EQ(next->code(), ErrorCode::kPeerGone);
  EXPECT_TRUE(next->connection.channel->closed);
}

TEST_F(Arriving, OneThatKnowsALaterTermIsNotSeatedAndTheJournalIsAsked) {
  wire::Hello hello = hello_of("a");
  hello.set_run_id("run");
  hello.set_term(3);
  bench.journal.record_term(Term{2});
  bench.flush();
  const MarkExpected later("arrivals.knows_a_later_term");
  EXPECT_EQ(say(hello)->code(), ErrorCode::kPeerGone);
  EXPECT_FALSE(bench.rulings.any()) << "the journal says that this one leads";
  bench.journal.record_term(Term{3});
  bench.flush();
  EXPECT_EQ(say(hello)->code(), ErrorCode::kPeerGone);
  EXPECT_EQ(bench.rulings.take_step_down(), "the journal is at term 3, this is 2");
  EXPECT_TRUE(bench.members.members().empty());
  hello.set_run_id("another run");
  EXPECT_TRUE(say(hello)->welcome().has_seat()) << "terms of other runs say nothing";
}

TEST_F(Arriving, ASeatThatCantBeWrittenDownIsNotGiven) {
  bench.lead.expire();
  const auto caller = say(hello_of("a"));
  EXPECT_FALSE(caller->answer.has_value());
  EXPECT_TRUE(bench.writer.refused().has_value()) << "another coordinator leads";
}

TEST_F(Arriving, WhoKeptItsSeatWithoutACoordinatorGoesOnWithIt) {
  JournaledRun run;
  run.era = Era{1};
  run.era_version = 4;
  run.seats.push_back({.seat = {PeerId{5}, StageId{1}, Incarnation{3}},
                       .address = "host:a",
                       .state = "active",
                       .reach = "no"});
  bench.recovery.begin(run, Term{2}, false);
  bench.life.move_to(life::Recovering{});
  wire::Hello hello = hello_of("a");
  hello.set_run_id("run");
  *hello.mutable_previous() = to_wire(run.seats[0].seat);
  hello.mutable_holdings()->set_era(1);
  hello.mutable_holdings()->set_version(4);
  const auto caller = say(hello);
  EXPECT_TRUE(caller->welcome().resumed());
  EXPECT_EQ(from_wire(caller->welcome().seat()), run.seats[0].seat);
  EXPECT_EQ(bench.sessions.of(PeerId{5}), caller->session());
  EXPECT_EQ(bench.members.at(PeerId{5}).reach, Reach::kNo) << "nobody could ask it anew";
}

TEST_F(Arriving, ARunThatIsAboutToEndTakesOnlyWhomItSentForAStage) {
  bench.committed(3);
  const Seat member = bench.seated(1), host = bench.seated(0);
  bench.seated(0);
  bench.audit.say(member, 3, 77);
  bench.ready_shadow(host, 1, 77);
  ASSERT_TRUE(bench.takeovers.await_candidate(bench.lost(member)));
  bench.takeovers.send_candidates();
  bench.rulings.take_losses();
  bench.lost(host);
  bench.life.move_to(life::Training{});
  bench.life.move_to(life::FinalCheckpoint{});
  EXPECT_FALSE(say(hello_of("a"))->answer.has_value()) << "it hears how the run ended";
  wire::Hello sent = hello_again(host);
  sent.mutable_followed()->set_stage(1);
  sent.mutable_followed()->set_version(3);
  const wire::Welcome welcome = say(sent)->welcome();
  const Seat seat = from_wire(welcome.seat());
  EXPECT_EQ(seat, (Seat{host.peer, StageId{1}, Incarnation{2}}));
  EXPECT_TRUE(welcome.keeps_followed());
  EXPECT_TRUE(bench.members.follows(seat));
  bench.takeovers.check_invariants();
}

TEST_F(Arriving, AStateThatIsTooOldIsFetchedAnew) {
  bench.committed(9);
  bench.life.move_to(life::Training{});
  bench.seated(0);
  wire::Hello hello = hello_of("a");
  hello.mutable_followed()->set_stage(1);
  hello.mutable_followed()->set_version(3);
  const wire::Welcome welcome = say(hello)->welcome();
  EXPECT_EQ(welcome.seat().stage(), 1U);
  EXPECT_FALSE(welcome.keeps_followed()) << "nobody remembers the commits since";
}

TEST_F(Arriving, AnEndIsToldToAllThatWait) {
  bench.life.move_to(life::RollingBack{"all were lost"});
  const auto waiting = say(hello_of("a")), gone = say(hello_of("b"));
  const auto fresh = std::make_shared<Caller>();
  hear(fresh, hello_of("c"));
  gone->session()->closed = true;
  arrivals.tell_the_end_to_all(make_frame(MessageKind::kShutdown, wire::Shutdown()));
  settle();
  for (const auto& caller : {waiting, fresh})
    EXPECT_EQ(caller->connection.kinds(), std::vector{MessageKind::kShutdown});
  EXPECT_EQ(waiting->code(), ErrorCode::kPeerGone) << "it is not refused";
  EXPECT_TRUE(gone->connection.kinds().empty());
}

}  // namespace
}  // namespace swarmline
