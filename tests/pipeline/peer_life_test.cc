// A peer's life and its way to the coordinator, each alone.
#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include <gtest/gtest.h>

#include "engine/config/configured_codec.h"
#include "engine/config/load.h"
#include "pipeline/protocol/knobs.h"
#include "pipeline/stage/life/coordinator_link.h"
#include "pipeline/stage/life/peer_lifecycle.h"
#include "pipeline/stage/life/stage_builder.h"
#include "sim/cluster/fake_stage_model.h"
#include "sim/doors/sim_network.h"
#include "sim/doors/sim_runtime.h"
#include "tests/harness/mark_expected.h"
#include "tests/pipeline/swarm_config.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;
using enum PeerState;

TEST(PeerLifecycle, ASeatIsLostAndAnotherOneFound) {
  PeerLifecycle life;
  EXPECT_FALSE(life.has_seat());
  for (const PeerState state : {kBuilding, kSeated, kAdrift, kSeated}) {
    life.become(state);
    EXPECT_TRUE(life.has_seat()) << kPeerStates.name(state);
  }
  EXPECT_EQ(life.life(), 0U);
  life.become(kDropping);
  EXPECT_EQ(life.life(), 1U) << "timers of the life before end";
  EXPECT_FALSE(life.has_seat());
  life.become(kSeeking);
  life.become(kInheriting);
  EXPECT_TRUE(life.making());
}

TEST(PeerLifecycle, WhatItWasWorthAtItsEndCountsOn) {
  PeerLifecycle seated;
  seated.become(kBuilding);
  seated.become(kSeated);
  seated.become(kFinished);
  EXPECT_TRUE(seated.counts_as_seated());
  EXPECT_FALSE(seated.has_seat());
  PeerLifecycle left;
  left.become(kBuilding);
  left.become(kSeated);
  left.leave();
  EXPECT_TRUE(left.counts_as_seated());
  left.become(kFinished);
  EXPECT_FALSE(left.counts_as_seated());
}

TEST(PeerLifecycle, EveryStateButTheLastHasAWayToTheEndAndNoneLeadsOut) {
  for (const PeerState state : kPeerStates.states()) {
    EXPECT_EQ(kPeerStates.allows(state, kFinished), state != kFinished) << kPeerStates.name(state);
    EXPECT_FALSE(kPeerStates.allows(kFinished, state)) << kPeerStates.name(state);
  }
  EXPECT_FALSE(kPeerStates.allows(kSeeking, kSeated)) << "a stage is built first";
}

TEST(PeerLifecycleDeathTest, ATransitionThatTheTableDoesNotHaveAborts) {
  PeerLifecycle life;
  EXPECT_DEATH(life.become(kAdrift), "seeking becomes adrift");
}

// ---- CoordinatorLink ----------------------------------------------------------------------------

class CoordinatorLinkTest : public testing::Test {
 protected:
  // A coordinator on that node that answers every Hello alike.
  void listen(SimNodeId node, std::optional<std::uint64_t> term) {
    const auto bound = network_.node(node).listen(
        {"sim", static_cast<std::uint16_t>(node)},
        [this, node, term](const std::shared_ptr<Connection>& connection) {
          channels_[node] = RpcChannel::make(runtime_.node(node), connection);
          channels_[node]->start({
              .on_message = [this, node](const Frame& frame) { on_message(node, frame); },
              .on_request =
                  [this, node, term](const Frame&, const RpcChannel::Respond& respond) {
                    greeted_.push_back(node);
                    wire::Welcome welcome;
                    welcome.set_run_id("run");
                    welcome.set_term(term.value_or(0));
                    if (term)
                      respond(make_frame(MessageKind::kWelcome, welcome));
                    else
                      kept_.push_back(respond);
                  },
              .on_closed = [](const Error&) {},
          });
        });
    ASSERT_TRUE(bound.has_value());
    link_.add_address(*bound);
  }

  void on_message(SimNodeId node, const Frame& frame) {
    heard_.push_back(kind_of(frame));
    if (kind_of(frame) != MessageKind::kHeartbeat) return;
    beats_.emplace_back(runtime_.now(), parse<wire::Heartbeat>(frame)->period_seconds());
    if (!acks_) return;
    wire::HeartbeatAck ack;
    ack.set_period_seconds(std::exchange(asks_seconds_, 0));
    ack.set_seat_certificate(std::exchange(certificate_, ""));
    channels_[node]->notify(make_frame(MessageKind::kHeartbeatAck, ack));
  }
  void begin(Duration period) {
    listen(5, 1);
    link_.set_patience(60s);
    link_.search("");
    link_.connect();
    runtime_.run_for(1s);
    link_.begin_heartbeats(period);
  }

  SimRuntime runtime_{1};
  SimNetwork network_{runtime_, {}};
  bool acks_ = false;
  double asks_seconds_ = 0;  // with the next ack
  std::string certificate_;
  std::vector<std::string> certificates_;
  std::vector<std::pair<Instant, double>> beats_;
  std::map<SimNodeId, std::shared_ptr<RpcChannel>> channels_;
  std::vector<RpcChannel::Respond> kept_;
  std::vector<SimNodeId> greeted_;
  std::vector<MessageKind> heard_;
  std::vector<std::uint64_t> welcomes_;
  std::optional<std::string> ended_;
  int closed_ = 0;
  CoordinatorLink link_{
      runtime_.node(1),
      network_.node(1),
      {.hello = [] { return wire::Hello(); },
       .on_welcome = [this](const wire::Welcome& welcome,
                            bool) { welcomes_.push_back(welcome.term()); },
       .on_message = [](const Frame&) {},
       .on_closed =
           [this](const Error& error) {
             ++closed_;
             link_.try_next(error);
           },
       .on_end = [this](int, const std::string& why) { ended_ = why; },
       .heartbeat =
           [] {
             wire::Heartbeat beat;
             beat.mutable_seat()->set_peer(1);
             return beat;
           },
       .on_certificate =
           [this](const std::string& certificate) { certificates_.push_back(certificate); }}};
};

TEST_F(CoordinatorLinkTest, SaysHelloAndBeats) {
  listen(5, 1);
  link_.set_patience(10s);
  link_.search("");
  link_.connect();
  runtime_.run_for(1s);
  EXPECT_EQ(welcomes_, std::vector<std::uint64_t>{1});
  EXPECT_EQ(link_.run_id(), "run");
  link_.begin_heartbeats(100ms);
  runtime_.run_for(1s);
  EXPECT_GE(heard_.size(), 10U);
  link_.end_heartbeats();
  runtime_.run_for(10ms);
  heard_.clear();
  runtime_.run_for(1s);
  EXPECT_TRUE(heard_.empty());
  link_.check_invariants();
}

TEST_F(CoordinatorLinkTest, TakesTheCertificateThatComesWithAnAck) {
  const MarkExpected rule("link.certified_anew");
  acks_ = true;
  begin(100ms);
  EXPECT_TRUE(certificates_.empty()) << "there was none to take";
  certificate_ = "of the new key";
  runtime_.run_for(1s);
  EXPECT_EQ(certificates_, std::vector<std::string>{"of the new key"});
}

TEST_F(CoordinatorLinkTest, ANewcomersPatienceEnds) {
  link_.add_address({"sim", 99});
  link_.set_patience(3s);
  link_.search("");
  link_.connect();
  runtime_.run_for(10s);
  ASSERT_TRUE(ended_.has_value());
  EXPECT_NE(ended_->find("no coordinator answers"), std::string::npos) << *ended_;
}

TEST_F(CoordinatorLinkTest, WhoGivesNoWelcomeIsLeftForTheNextAddress) {
  const MarkExpected no_welcome("link.no_welcome");
  listen(5, std::nullopt);
  listen(6, 2);
  link_.set_patience(60s);
  link_.search("");
  link_.connect();
  runtime_.run_for(knobs().welcome_timeout + 2s);
  EXPECT_EQ(greeted_, (std::vector<SimNodeId>{5, 6}));
  EXPECT_EQ(welcomes_, std::vector<std::uint64_t>{2});
}

// Its coordinator begins again, or has its hands full: nobody refused it.
TEST_F(CoordinatorLinkTest, WhoseHelloIsDroppedSaysItAgain) {
  listen(5, std::nullopt);
  link_.set_patience(60s);
  link_.search("");
  link_.connect();
  runtime_.run_for(1s);
  ASSERT_EQ(greeted_.size(), 1U);
  kept_.clear();
  runtime_.run_for(1s);
  EXPECT_FALSE(ended_.has_value()) << *ended_;
  EXPECT_EQ(greeted_.size(), 2U);
}

// Each welcome is journaled: one whose link is cut again and again comes back ever more seldom.
TEST_F(CoordinatorLinkTest, WhoIsWelcomedTooOftenDialsLessOften) {
  const MarkExpected too_often("link.welcomed_too_often");
  listen(5, 1);
  link_.set_patience(600s);
  link_.search("");
  link_.connect();
  const auto welcomed_within = [&](Duration time) {
    const std::size_t before = welcomes_.size();
    for (Duration waited{}; waited < time; waited += 50ms) {
      runtime_.run_for(50ms);
      if (channels_[5]) std::exchange(channels_[5], nullptr)->close();
    }
    return welcomes_.size() - before;
  };
  EXPECT_GT(welcomed_within(1s), 3U) << "at once, to begin with";
  welcomed_within(10s);
  EXPECT_LE(welcomed_within(10s), 5U);
  EXPECT_GT(welcomed_within(10s), 2U) << "it is never given up";
  runtime_.run_for(knobs().rejoin_calm + 5s);
  EXPECT_GE(welcomed_within(1s), 3U) << "a calm link begins anew";
}

TEST_F(CoordinatorLinkTest, ALowerTermIsLeft) {
  const MarkExpected lower("link.lower_term_left");
  listen(5, 3);
  listen(6, 2);
  link_.set_patience(60s);
  link_.search("");
  link_.connect();
  runtime_.run_for(1s);
  channels_[5]->close();
  runtime_.run_for(500ms);
  EXPECT_EQ(greeted_.at(1), 6U);
  EXPECT_EQ(std::ranges::count(welcomes_, 2U), 0) << "the lower one counts for nothing";
  EXPECT_EQ(link_.term(), Term{3});
}

TEST_F(CoordinatorLinkTest, ASilentOneIsLeftWhereThereIsAnother) {
  const MarkExpected silent("link.silent_coordinator_left");
  listen(5, 1);
  listen(6, 1);
  link_.set_patience(60s);
  link_.search("");
  link_.connect();
  runtime_.run_for(1s);
  link_.begin_heartbeats(100ms);
  runtime_.run_for(knobs().coordinator_silence + 2s);
  EXPECT_GE(closed_, 1);
  EXPECT_EQ(greeted_.at(1), 6U);
}

// It says what it does, and never beats later than it said.
TEST_F(CoordinatorLinkTest, BeatsAsOftenAsItIsAskedTo) {
  const MarkExpected asked("link.asked_for_another_period");
  acks_ = true;
  begin(100ms);
  runtime_.run_for(1s);
  asks_seconds_ = 2;
  runtime_.run_for(20s);
  asks_seconds_ = 0.4;
  runtime_.run_for(10s);
  ASSERT_GT(beats_.size(), 20U);
  std::set<double> said;
  for (std::size_t i = 0; i + 1 < beats_.size(); ++i) {
    const auto [when, period] = beats_[i];
    said.insert(period);
    EXPECT_LE(beats_[i + 1].first - when, from_seconds(period == 0 ? 0.1 : period) + 5ms);
  }
  EXPECT_TRUE(said.contains(0) && said.contains(0.4) && said.contains(2));
  EXPECT_EQ(said.size(), 5U) << "two of them once: those that are asked at once spread";
  EXPECT_GE(std::ranges::count(beats_, 2.0, &std::pair<Instant, double>::second), 10);
  EXPECT_GE(std::ranges::count(beats_, 0.4, &std::pair<Instant, double>::second), 5);
}

TEST_F(CoordinatorLinkTest, APeriodThatNobodyCanKeepIsNotHeard) {
  acks_ = true;
  begin(100ms);
  for (const double seconds : {-1.0, 1e-9, 1e9, std::numeric_limits<double>::quiet_NaN()}) {
    asks_seconds_ = seconds;
    runtime_.run_for(1s);
  }
  EXPECT_GE(beats_.size(), 39U);
}

// Whoever leads now has asked for nothing yet, and counts on the usual ones.
TEST_F(CoordinatorLinkTest, BeatsAtOnceAndAsUsualForAnother) {
  acks_ = true;
  begin(100ms);
  asks_seconds_ = 5;
  runtime_.run_for(10s);
  const std::size_t before = beats_.size();
  link_.beat_as_usual();
  runtime_.run_for(1s);
  EXPECT_GE(beats_.size(), before + 10);
  EXPECT_EQ(beats_.back().second, 0);
  link_.beat_as_usual();
  runtime_.run_for(10ms);
  EXPECT_LE(beats_.size(), before + 12) << "it does already";
}

// ... also where the one before asked for the usual ones in the middle of a longer pause.
TEST_F(CoordinatorLinkTest, BeatsAtOnceForAnotherThoughItWasAskedToBeatAsUsual) {
  acks_ = true;
  begin(100ms);
  asks_seconds_ = 5;
  runtime_.run_for(10s);
  asks_seconds_ = 0.1;
  const std::size_t long_pause = beats_.size() + 1;
  for (int i = 0; i < 600 && beats_.size() < long_pause; ++i) runtime_.run_for(10ms);
  runtime_.run_for(100ms);
  ASSERT_EQ(beats_.size(), long_pause) << "its answer came";
  link_.beat_as_usual();
  runtime_.run_for(1s);
  EXPECT_GE(beats_.size(), long_pause + 10);
}

// Between two of its own heartbeats nobody has to answer it.
TEST_F(CoordinatorLinkTest, OneThatAnswersRareHeartbeatsIsNotSilent) {
  acks_ = true;
  listen(6, 1);
  begin(500ms);
  asks_seconds_ = to_seconds(knobs().heartbeat_period_max);
  runtime_.run_for(120s);
  EXPECT_EQ(closed_, 0);
  acks_ = false;
  const MarkExpected silent("link.silent_coordinator_left");
  runtime_.run_for(knobs().coordinator_silence + 3 * knobs().heartbeat_period_max);
  EXPECT_EQ(closed_, 1);
}

// ---- What a welcome says ------------------------------------------------------------------------

TEST(StageBuilder, ACutThatDoesNotDivideTheModelIsRefused) {
  SeatOffer offer{.seat = {PeerId{1}, StageId{1}, Incarnation{1}},
                  .config = to_toml(small_run(2, 1)),
                  .vocab = 31};
  const std::uint32_t layers = small_run(2, 1).model.layers;
  offer.cuts = {{.first_layer = 0, .last_layer = layers / 2},
                {.first_layer = layers / 2, .last_layer = layers}};
  const auto parts = parts_of(offer, PeerConfig{});
  ASSERT_TRUE(parts.has_value()) << parts.error().what;
  EXPECT_EQ(parts->stage.last_layer, layers);
  EXPECT_EQ(parts->config.codec.checksums, TileChecksums::kAuto);
  offer.cuts[1].first_layer += 1;
  EXPECT_EQ(parts_of(offer, PeerConfig{}).error().code, ErrorCode::kCorrupt);
  offer.seat.stage = StageId{2};
  EXPECT_EQ(parts_of(offer, PeerConfig{}).error().code, ErrorCode::kCorrupt);
}

TEST(StageBuilder, TilesOfSealedLinksHaveChecksumsOnlyWhereTheConfigAsksForThem) {
  RunConfig config = small_run(1, 1);
  SeatOffer offer{.seat = {PeerId{1}, StageId{0}, Incarnation{1}},
                  .config = to_toml(config),
                  .vocab = 31,
                  .cuts = {{.first_layer = 0, .last_layer = config.model.layers}},
                  .sealed_links = true};
  {
    const MarkExpected rule("stage.links_check_the_tiles");
    const auto parts = parts_of(offer, PeerConfig{});
    ASSERT_TRUE(parts.has_value()) << parts.error().what;
    EXPECT_FALSE(codec_options(parts->config.codec).checksums);
  }
  config.codec.checksums = TileChecksums::kAlways;
  offer.config = to_toml(config);
  EXPECT_TRUE(codec_options(parts_of(offer, PeerConfig{})->config.codec).checksums);
}

// A card that is nearly empty admits more than a gibibyte, and computes nothing again.
TEST(StageBuilder, ADevicesFreeMemoryDecidesHowMuchItAdmits) {
  RunConfig config = small_run(1, 1);
  config.batch.sequence = 256;
  config.wiring.in_flight_per_peer = 64;
  const SeatOffer offer{.seat = {PeerId{1}, StageId{0}, Incarnation{1}},
                        .config = to_toml(config),
                        .vocab = 31,
                        .cuts = {{.first_layer = 0, .last_layer = config.model.layers}}};
  std::uint64_t left = 0;
  std::optional<bool> recomputes;
  StagePeerOptions options;
  options.machine.device = "cuda:1";
  options.make_source = [](const RunConfig&) { return std::unique_ptr<MicrobatchSource>(); };
  options.make_model = [&](const ModelSpec& spec, const StageSpec& stage,
                           const StageModelOptions& model) {
    recomputes = model.recompute;
    return make_fake_model(spec, stage, model);
  };
  options.free_device_memory = [&](const std::string& device) {
    EXPECT_EQ(device, "cuda:1");
    return left;
  };
  const auto admitted = [&] {
    auto parts = parts_of(offer, options.machine);
    EXPECT_TRUE(parts && build_stage(options, *parts));
    return parts->admit_bytes;
  };
  EXPECT_EQ(admitted(), kGiB) << "not known";
  left = 80 * kGiB;
  EXPECT_EQ(admitted(), 20 * kGiB);
  EXPECT_FALSE(*recomputes);
  left = kMiB;
  EXPECT_EQ(admitted(), kMiB);
  EXPECT_TRUE(*recomputes);
  left = 80 * kGiB;
  options.machine.memory_bytes = 8 * kGiB;
  EXPECT_EQ(admitted(), 2 * kGiB) << "said by the user";
}

}  // namespace
}  // namespace swarmline
