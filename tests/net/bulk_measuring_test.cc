// Where a run leaves the choice, each end measures which way its payloads take faster to the other.
#include <gtest/gtest.h>

#include "base/byte_ops.h"
#include "tests/net/bulk_ends.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

constexpr Duration kFast = 10ms, kSlow = 100ms;  // a MiB
constexpr std::uint64_t kTrials = 2 * kBulkTrialRounds;

class BulkMeasuring : public BulkEnds {
 protected:
  explicit BulkMeasuring(std::uint64_t seed = 1) : BulkEnds(seed) {
    for (const auto& door : doors_)
      door->allow({.ways = {"fake"}, .trusted = {}, .measures = true});
  }
  // A connection with a link, whose trials have just begun. What a MiB takes: `frames` each way,
  // and over the link.
  void begin(Duration frames, Duration to_server, Duration to_client) {
    links_.mib_takes = {to_client, to_server};
    connect(false);
    client_.beneath->mib_takes = server_.beneath->mib_takes = frames;
    offer_links();
  }
  void begin(Duration frames, Duration link) { begin(frames, link, link); }
  void offer_links() {
    const std::size_t before = links_.made.size();
    const std::string answer = server_.connection->answer(client_.connection->offer());
    ASSERT_TRUE(client_.connection->take_answer(answer).has_value());
    ASSERT_TRUE(run_until([&] { return links_.made.size() == before + 2; }));
    run_for(delays_.most);
  }
  void expect_measured(std::uint64_t times = 1) {
    ASSERT_TRUE(run_until([&] {
      return doors_[0]->counters().links_measured == times &&
             doors_[1]->counters().links_measured == times;
    }));
    EXPECT_EQ(doors_[0]->counters().trials_sent, kTrials * times);
    EXPECT_EQ(doors_[1]->counters().trials_sent, kTrials * times);
  }
  // Whether a payload of that end goes over the link; it arrives in any case, as it was.
  bool takes_link(SeenEnd& from, SeenEnd& to, std::size_t door) {
    Rng rng(7);
    const SharedBytes payload = drawn(rng, 5000);
    const std::uint64_t before = doors_[door]->counters().payloads_sent;
    from.connection->send({.kind = 1, .payload = {payload}});
    EXPECT_TRUE(
        run_until([&] { return !to.frames.empty() && from.connection->unsent_bytes() == 0; }));
    EXPECT_TRUE(same_bytes(to.frames.back().received_payload(), payload.view()));
    EXPECT_EQ(to.frames.size(), 1U) << "nobody sees a trial";
    to.frames.clear();
    return doors_[door]->counters().payloads_sent > before;
  }
  bool client_takes_link() { return takes_link(client_, server_, 0); }
  bool server_takes_link() { return takes_link(server_, client_, 1); }
  // As somebody who keeps no rules.
  void say_trial(std::uint64_t number, std::uint64_t bytes = kBulkTrialBytes,
                 std::uint32_t flags = kFrameFlagBulkTrial) {
    Frame frame{.kind = 1, .request = number, .flags = flags};
    if (bytes > 0) frame.payload = {SharedBytes(Buffer::zeroed(bytes))};
    client_.beneath->send(std::move(frame));
  }
  void expect_refused() {
    expect_ended(ErrorCode::kCorrupt);
    EXPECT_EQ(doors_[1]->counters().bad_tickets, 1U);
  }
};

TEST_F(BulkMeasuring, AFasterLinkIsTaken) {
  begin(kSlow, kFast);
  EXPECT_EQ(client_.connection->way(), "");
  EXPECT_FALSE(client_takes_link()) << "nothing waits for the verdict";
  expect_measured();
  EXPECT_EQ(client_.connection->way(), "fake");
  EXPECT_EQ(server_.connection->way(), "fake");
  EXPECT_TRUE(client_takes_link());
  EXPECT_TRUE(server_takes_link());
  EXPECT_EQ(doors_[0]->counters().links_slower, 0U);
}

TEST_F(BulkMeasuring, ASlowerLinkIsNotTakenByEitherEnd) {
  begin(kFast, kSlow);
  expect_measured();
  EXPECT_FALSE(client_takes_link());
  EXPECT_FALSE(server_takes_link());
  EXPECT_EQ(doors_[0]->counters().links_slower, 1U);
  EXPECT_FALSE(client_.connection->shares_memory());
}

TEST_F(BulkMeasuring, EachDirectionIsDecidedByItself) {
  begin(30ms, kFast, kSlow);
  expect_measured();
  EXPECT_TRUE(client_takes_link());
  EXPECT_FALSE(server_takes_link());
  EXPECT_EQ(client_.connection->way(), "fake");
  EXPECT_EQ(server_.connection->way(), "");
}

TEST_F(BulkMeasuring, TheVerdictHoldsForTheNextConnectionToThatHost) {
  begin(30ms, kFast, kSlow);
  expect_measured();
  const SeenEnd before[] = {client_, server_};
  begin(30ms, kSlow, kFast);  // now the other way round, and nobody looks again
  EXPECT_EQ(client_.connection->way(), "fake");
  EXPECT_EQ(server_.connection->way(), "");
  EXPECT_TRUE(client_takes_link());
  EXPECT_FALSE(server_takes_link());
  expect_measured(1);
  for (const SeenEnd& end : before) end.beneath->forget();
}

// Lines change. What is there goes on as it was.
TEST_F(BulkMeasuring, AVerdictHoldsForAnHour) {
  begin(30ms, kFast, kSlow);
  expect_measured();
  const SeenEnd before[] = {client_, server_};
  run_for(kBulkMeasuredLife);
  EXPECT_TRUE(client_takes_link());
  begin(30ms, kSlow, kFast);
  expect_measured(2);
  EXPECT_FALSE(client_takes_link());
  EXPECT_TRUE(server_takes_link());
  EXPECT_EQ(before[0].connection->way(), "fake");
  for (const SeenEnd& end : before) end.beneath->forget();
}

TEST_F(BulkMeasuring, AConnectionThatComesMeanwhileUsesItsLinkUntilTheVerdictIsThere) {
  begin(kFast, kSlow);
  const SeenEnd before[] = {client_, server_};
  begin(kFast, kFast);
  EXPECT_TRUE(client_takes_link());
  expect_measured();
  EXPECT_FALSE(client_takes_link());
  EXPECT_FALSE(server_takes_link());
  for (const SeenEnd& end : before) end.beneath->forget();
}

TEST_F(BulkMeasuring, WhereTheFirstConnectionEndsTheNextOneMeasures) {
  begin(kFast, kSlow);
  client_.connection->close();
  ASSERT_TRUE(run_until([&] { return !client_.closed.empty() && !server_.closed.empty(); }));
  EXPECT_EQ(client_.closed.front().code, ErrorCode::kStopped);
  EXPECT_EQ(doors_[0]->counters().links_measured, 0U);
  begin(kFast, kSlow);
  ASSERT_TRUE(run_until([&] {
    return doors_[0]->counters().links_measured == 1 && doors_[1]->counters().links_measured == 1;
  }));
  EXPECT_FALSE(client_takes_link());
}

// An older program, or one whose user has decided, says nothing of trials.
TEST_F(BulkMeasuring, WithAnEndThatKnowsNoTrialsTheLinkIsTaken) {
  for (const std::size_t older : {0U, 1U}) {
    doors_[older]->allow({.ways = {"fake"}, .trusted = {}});
    doors_[1 - older]->allow({.ways = {"fake"}, .trusted = {}, .measures = true});
    begin(kFast, kSlow);
    EXPECT_TRUE(client_takes_link());
    EXPECT_TRUE(server_takes_link());
    EXPECT_EQ(doors_[0]->counters().trials_sent + doors_[1]->counters().trials_sent, 0U);
    client_.beneath->forget();
    server_.beneath->forget();
  }
}

TEST_F(BulkMeasuring, WhoHasDecidedMeasuresNothingAndSaysNothingOfIt) {
  for (const auto& door : doors_) door->allow({.ways = {"fake"}, .trusted = {}});
  connect(false);
  EXPECT_EQ(parse_bulk_offer(client_.connection->offer())->trial_kind, 0U);
  client_.beneath->forget();
  server_.beneath->forget();
  begin(kFast, kSlow);
  EXPECT_TRUE(client_takes_link());
  EXPECT_EQ(doors_[0]->counters().trials_sent, 0U);
}

class BulkMeasuringSeeds : public BulkMeasuring,
                           public ::testing::WithParamInterface<std::uint64_t> {
 protected:
  BulkMeasuringSeeds() : BulkMeasuring(GetParam()) {}
};

// Both ends say frames of all sizes before, between and after the trials.
TEST_P(BulkMeasuringSeeds, FramesKeepTheirOrderWithTrialsBetween) {
  begin(GetParam() % 2 == 0 ? kFast : kSlow, 30ms);
  Rng rng(GetParam() + 1000);
  std::vector<Frame> sent[2];
  for (std::uint16_t i = 0; i < 200; ++i) {
    const std::size_t side = rng.below(2);
    Frame frame = drawn_frame(rng, i);
    sent[side].push_back(frame);
    (side == 0 ? client_ : server_).connection->send(std::move(frame));
    if (rng.below(3) == 0) run_for(Duration(static_cast<Duration::rep>(rng.below(12'000'000))));
  }
  ASSERT_TRUE(run_until([&] {
    return server_.frames.size() == sent[0].size() && client_.frames.size() == sent[1].size();
  }));
  for (std::size_t side = 0; side < 2; ++side) {
    const SeenEnd& end = side == 0 ? server_ : client_;
    for (std::size_t i = 0; i < sent[side].size(); ++i) {
      EXPECT_EQ(end.frames[i].meta, sent[side][i].meta);
      EXPECT_EQ(end.frames[i].flags, 0U);
      EXPECT_TRUE(
          same_bytes(end.frames[i].received_payload(), joined(sent[side][i].payload).view()));
    }
  }
  expect_measured();
  EXPECT_TRUE(client_.closed.empty() && server_.closed.empty());
}
INSTANTIATE_TEST_SUITE_P(Seeds, BulkMeasuringSeeds,
                         ::testing::Range(std::uint64_t{1}, std::uint64_t{21}));

// The other end has a link that swallows all: its trial isn't answered, and frames do better.
TEST_F(BulkMeasuring, ALinkThatDoesNotAnswerInTimeIsNotTakenAndNothingIsRemembered) {
  links_.hold = true;
  begin(kFast, kFast);
  run_for(kBulkTrialsTime - 1s);
  EXPECT_EQ(client_.connection->way(), "");
  run_for(2s);
  EXPECT_EQ(client_.connection->way(), "");
  EXPECT_EQ(doors_[0]->counters().links_measured, 0U);
  const SeenEnd before[] = {client_, server_};
  links_.hold = false;
  begin(kSlow, kFast);
  ASSERT_TRUE(run_until([&] { return doors_[0]->counters().links_measured == 1; }));
  EXPECT_EQ(client_.connection->way(), "fake");
  for (const SeenEnd& end : before) end.beneath->forget();
}

// Something always waits to be sent: what would be measured is that.
TEST_F(BulkMeasuring, WhereThereIsNeverTimeForATrialTheLinkIsTaken) {
  connect(false);
  client_.beneath->unsent = server_.beneath->unsent = 1;
  offer_links();
  run_for(kBulkTrialsTime - 1s);
  EXPECT_EQ(client_.connection->way(), "");
  run_for(2s);
  EXPECT_EQ(client_.connection->way(), "fake");
  EXPECT_EQ(doors_[0]->counters().trials_sent, 0U);
  EXPECT_EQ(doors_[0]->counters().links_measured, 0U);
}

// A trial is on the link, and what follows is more than the other end would keep behind it.
TEST_F(BulkMeasuring, LittleIsSentBehindATrial) {
  links_.hold = true;
  begin(kFast, kFast);
  ASSERT_TRUE(run_until([&] { return client_.connection->unsent_bytes() > 0; }));  // it has left
  const SharedBytes payload(Buffer::zeroed(9 * kMiB));
  for (int i = 0; i < 40; ++i) client_.connection->send({.kind = 1, .payload = {payload}});
  EXPECT_LE(client_.beneath->counters().bytes_sent, kBulkAheadBytesMax + 3 * kBulkTrialBytes);
  EXPECT_GT(client_.connection->unsent_bytes(), 38 * payload.size());
}

TEST_F(BulkMeasuring, ALinkThatBreaksWithATrialOnItTakesItsConnectionAlong) {
  links_.hold = true;
  begin(kFast, kFast);
  run_for(100ms);
  EXPECT_GT(client_.connection->unsent_bytes(), 0U);  // it does not leave
  servers_link().break_off(ErrorCode::kPeerGone);
  clients_link().break_off(ErrorCode::kPeerGone);
  ASSERT_TRUE(run_until([&] { return !client_.closed.empty(); }));
  EXPECT_EQ(client_.closed.front().code, ErrorCode::kPeerGone);
  EXPECT_EQ(doors_[0]->counters().links_broken, 1U);
  EXPECT_EQ(doors_[0]->counters().links_measured, 0U);
}

// The trial is with its frame: nothing is lost, and its answer is welcome.
TEST_F(BulkMeasuring, ALinkThatBreaksBetweenItsTrialsIsDoneWithout) {
  begin(1s, kFast);
  EXPECT_EQ(doors_[0]->counters().trials_sent, 1U);
  clients_link().break_off(ErrorCode::kPeerGone);
  servers_link().break_off(ErrorCode::kPeerGone);
  run_for(5s);
  EXPECT_FALSE(client_takes_link());
  EXPECT_FALSE(server_takes_link());
  EXPECT_TRUE(client_.closed.empty() && server_.closed.empty());
  EXPECT_EQ(doors_[0]->counters().trials_sent, 1U);
}

TEST_F(BulkMeasuring, ACloseWithATrialUnderWayIsInGoodOrder) {
  begin(kFast, kSlow);
  for (int i = 0; i < 3; ++i)
    client_.connection->send({.kind = 1, .payload = {SharedBytes(Buffer::zeroed(5000))}});
  client_.connection->close();
  ASSERT_TRUE(run_until([&] { return !client_.closed.empty() && !server_.closed.empty(); }, 3s));
  EXPECT_EQ(client_.closed.front().code, ErrorCode::kStopped);
  EXPECT_EQ(server_.closed.front().code, ErrorCode::kPeerGone);
  EXPECT_EQ(server_.frames.size(), 3U);
}

// ---- Ends that keep no rules --------------------------------------------------------------------

TEST_F(BulkMeasuring, OneTrialTooManyEndsTheConnection) {
  connect(false);
  EXPECT_FALSE(server_.connection->answer(client_.connection->offer()).empty());
  client_.beneath->forget();  // it wants no answers
  for (std::uint64_t number = 0; number < kBulkTrialsMax; ++number) say_trial(number);
  run_for(1s);
  EXPECT_TRUE(server_.closed.empty());
  EXPECT_LE(server_.beneath->counters().bytes_sent, kBulkTrialsMax * kFrameHeaderBytes);
  say_trial(kBulkTrialsMax);
  expect_refused();
}

TEST_F(BulkMeasuring, ATrialOfAnotherSizeEndsTheConnection) {
  for (const std::uint64_t bytes : {kBulkTrialBytesMax + 1, std::uint64_t{0}}) {
    connect(false);
    EXPECT_FALSE(server_.connection->answer(client_.connection->offer()).empty());
    server_.closed.clear();
    say_trial(0, bytes);
    expect_ended(ErrorCode::kCorrupt);
    server_.beneath->forget();
    client_.beneath->forget();
  }
  EXPECT_EQ(doors_[1]->counters().bad_tickets, 2U);
}

TEST_F(BulkMeasuring, ATrialThatAnnouncesAnotherSizeEndsTheConnection) {
  begin(1s, kFast);
  const BulkTicket large{.payload_bytes = 2 * kBulkTrialBytesMax, .number = 0, .hash = 0};
  client_.beneath->send({.kind = 1,
                         .request = 1,
                         .flags = kFrameFlagBulk | kFrameFlagBulkTrial,
                         .payload = {SharedBytes(encode(large))}});
  expect_refused();
}

TEST_F(BulkMeasuring, ATrialOutOfTurnEndsTheConnection) {
  connect(false);
  EXPECT_FALSE(server_.connection->answer(client_.connection->offer()).empty());
  say_trial(1);
  expect_refused();
}

TEST_F(BulkMeasuring, AnAnswerToNoTrialEndsTheConnection) {
  connect(false);
  EXPECT_FALSE(server_.connection->answer(client_.connection->offer()).empty());
  say_trial(0, 0, kFrameFlagBulkTrial | kFrameFlagReply);
  expect_refused();
}

TEST_F(BulkMeasuring, ATrialOfAnEndToWhichNoneWasOfferedEndsTheConnection) {
  doors_[1]->allow({.ways = {"fake"}, .trusted = {}});
  connect(false);
  EXPECT_FALSE(server_.connection->answer(client_.connection->offer()).empty());
  say_trial(0);
  expect_refused();
}

// Who has not said who it is gets no trials, whatever it offers.
TEST_F(BulkMeasuring, ATrialOfAStrangerEndsTheConnection) {
  connect(false);
  const std::string offer = client_.connection->offer();
  EXPECT_NE(parse_bulk_offer(offer)->trial_kind, 0U);
  server_.connection->start(
      {.on_frame = [](const Frame&) {},
       .on_closed = [this](Error error) { server_.closed.push_back(std::move(error)); },
       .stranger = ConnectionBounds{}});
  EXPECT_EQ(parse_bulk_answer(server_.connection->answer(offer))->trial_kind, 0U);
  say_trial(0);
  expect_refused();
}

}  // namespace
}  // namespace swarmline
