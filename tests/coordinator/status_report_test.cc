// What a run shows of itself, without a coordinator.
#include "pipeline/coordinator/run/status_report.h"

#include <gtest/gtest.h>

#include "tests/coordinator/states_bench.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

class Status : public ::testing::Test {
 protected:
  RunStatus status() const {
    return status_of(sources(), "era 1 begins with the seed's parameters", bench.alarms.now());
  }
  StatusSources sources() const {
    return {.shape = bench.shape,
            .identity = identity,
            .segments = segments,
            .life = bench.life,
            .writer = bench.writer,
            .events = bench.events,
            .sequence = bench.sequence,
            .stats = stats,
            .cost = cost,
            .refusals = refusals,
            .sessions = bench.sessions,
            .members = bench.members,
            .relays = relays,
            .shadows = bench.shadows,
            .balancer = bench.balancer,
            .boundaries = boundaries,
            .checkpointer = bench.checkpointer};
  }
  void commit(std::uint64_t step, double loss, std::vector<PeerContributions> shares = {}) {
    CommitRecord record;
    record.step = step;
    record.loss = loss;
    record.tokens = 16;
    stats.on_commit(record, 1000, std::move(shares), bench.alarms.now());
    bench.committed(step + 1);
  }

  StatesBench bench;
  RunIdentity identity{.run_id = "run", .term = Term{2}, .era = Era{1}};
  RunSegments segments;
  RelayDesk relays{identity, bench.alarms, bench.outbox, bench.events};
  RunStats stats{2};
  CostMeter cost{bench.options.config.money};
  Refusals refusals{bench.alarms, bench.events};
  BoundaryBoard boundaries{bench.options.config, 32};
};

// Of what the run plans with, the status lacks nothing: who reads it can plan the same.
TEST_F(Status, WhatTheBalancerSeesIsShown) {
  const Seat a = bench.seated(0), b = bench.seated(1), slow = bench.seated(1);
  bench.seated(1);
  bench.members.at(a.peer).seconds_per_microbatch = 0.5;
  bench.members.at(b.peer).seconds_per_microbatch = 0.25;
  bench.members.at(slow.peer).seconds_per_microbatch = 1;
  bench.members.at(slow.peer).memory_bytes = 77;
  bench.members.at(b.peer).draining = true;
  const RunStatus now = status();
  EXPECT_EQ(now.balance_moves, bench.options.config.balance.moves);
  EXPECT_EQ(now.balance_shadows, 0);
  const PlanSnapshot seen =
      bench.balancer.snapshot(bench.members, bench.shadows, bench.alarms.now());
  for (std::size_t s = 0; s < 2; ++s) {
    EXPECT_EQ(now.stages[s].cost, seen.stages[s].cost);
    EXPECT_EQ(now.stages[s].state_bytes, seen.stages[s].state_bytes);
    EXPECT_GT(now.stages[s].state_bytes, 0U);
  }
  EXPECT_EQ(now.stages[0].cost, 0.5);
  ASSERT_EQ(seen.peers.size(), 3U);
  ASSERT_EQ(now.stages[1].peers.size(), 3U);
  EXPECT_EQ(now.stages[1].peers[0].speed, 0) << "it drains";
  EXPECT_EQ(now.stages[1].peers[1].speed, now.stages[1].cost / 1.0);
  EXPECT_EQ(now.stages[1].peers[1].memory_bytes, 77U);
  EXPECT_EQ(now.stages[1].peers[2].speed, 1) << "nobody has measured it";
  EXPECT_FALSE(now.stages[1].peers[1].moves_to.has_value());
}

// Of what nobody prices nothing is said; the journal's totals have what the status has.
TEST_F(Status, CostIsShownOnceSomebodySaysAPrice) {
  EXPECT_FALSE(status().cost.has_value());
  EXPECT_FALSE(run_totals(sources()).cost.has_value());
  cost.advance(bench.alarms.now());
  cost.set_rates({.serving = 3600, .unpriced = 2, .trains = true});
  bench.clock.run_for(10s);
  ASSERT_TRUE(status().cost.has_value());
  EXPECT_DOUBLE_EQ(status().cost->total, 10);
  EXPECT_EQ(status().cost->unpriced, 2U);
  EXPECT_EQ(status().cost->currency, "USD");
  EXPECT_FALSE(status().cost->per_step.has_value());
  cost.advance(bench.alarms.now());
  EXPECT_DOUBLE_EQ(run_totals(sources()).cost->machines, 10);
}

TEST_F(Status, SaysHowFarAPeerHasFetchedTheData) {
  const Seat seat = bench.seated(0);
  EXPECT_EQ(status().stages[0].peers.at(0).data, "");
  wire::Heartbeat beat;
  *beat.mutable_seat() = to_wire(seat);
  beat.mutable_data()->set_pieces(12);
  beat.mutable_data()->set_of(240);
  beat.mutable_data()->set_from(3);
  bench.members.heartbeat(beat);
  EXPECT_EQ(status().stages[0].peers.at(0).data, "") << "it has no need to fetch";
  bench.members.at(seat.peer).fetches_data = true;
  bench.members.heartbeat(beat);
  EXPECT_EQ(status().stages[0].peers.at(0).data, "fetches its data from peer 3: 12 of 240 pieces");
  beat.mutable_data()->set_from(0);
  bench.members.heartbeat(beat);
  EXPECT_EQ(status().stages[0].peers.at(0).data, "fetches its data: 12 of 240 pieces");
}

TEST_F(Status, BeforeTheFirstCommitNothingIsKnown) {
  const RunStatus now = status();
  EXPECT_EQ(now.state, "waiting");
  EXPECT_EQ(now.step, 0U);
  EXPECT_EQ(now.steps, bench.options.config.run.steps);
  EXPECT_EQ(now.era, 1U);
  EXPECT_FALSE(now.loss.has_value());
  EXPECT_FALSE(now.held_out_loss.has_value());
  EXPECT_EQ(now.era_sentence, "era 1 begins with the seed's parameters");
  EXPECT_EQ(now.refused, "");
  ASSERT_EQ(now.stages.size(), 2U);
  EXPECT_EQ(now.stages[1].first_layer, now.stages[0].last_layer);
  EXPECT_EQ(now.stages[1].wanted, 1U);
  EXPECT_EQ(now.boundaries.size(), 1U);
}

TEST_F(Status, SaysWhatTheNewestSegmentChanged) {
  RunSegment first;
  first.config = bench.options.config;
  segments.push_back(first);
  EXPECT_EQ(status().segment, 1U);
  EXPECT_EQ(status().segment_sentence, "");
  RunSegment second = first;
  second.number = 2;
  second.first_version = 0;
  second.changes = {{.key = "optimizer.lr", .before = "0.1", .after = "0.2"}};
  segments.push_back(second);
  EXPECT_EQ(status().segment, 2U);
  EXPECT_EQ(status().segment_sentence, "segment 2 from step 1: optimizer.lr 0.1 -> 0.2");
}

TEST_F(Status, PeersAreShownWithTheirShareOfTheStage) {
  const Seat a = bench.seated(0), b = bench.seated(1);
  bench.members.contributed(b.peer, 6);
  bench.members.at(a.peer).in_flight = 3;
  bench.members.at(b.peer).in_flight = 2;
  bench.members.at(b.peer).seconds_per_microbatch = 0.25;
  wire::Heartbeat beat;
  *beat.mutable_seat() = to_wire(a);
  beat.set_in_flight(3);
  beat.set_relayed_links(2);
  beat.set_relayed_bytes(1000);
  bench.members.heartbeat(beat);
  bench.standbys.add(a, StageId{1}, "test");
  stats.on_training_started(bench.alarms.now());
  bench.clock.run_for(10s);
  commit(0, 3,
         {{.peer = b.peer, .stage = StageId{1}, .microbatches = 6, .busy_seconds = 5},
          {.peer = PeerId{77}, .stage = StageId{1}, .microbatches = 6}});
  const RunStatus now = status();
  EXPECT_EQ(now.in_flight, 3U) << "of the sources alone";
  EXPECT_EQ(now.stages[0].peers[0].relayed_links, 2U);
  EXPECT_EQ(now.stages[0].peers[0].relayed_bytes, 1000U);
  EXPECT_EQ(now.stages[0].peers[0].share, 0) << "it has contributed nothing";
  ASSERT_EQ(now.stages[1].peers.size(), 1U);
  EXPECT_EQ(now.stages[1].peers[0].share, 1) << "of what those do who are there";
  EXPECT_EQ(now.stages[1].peers[0].busy, 0.5);
  EXPECT_EQ(now.stages[1].peers[0].microbatches, 6U);
  EXPECT_EQ(now.stages[1].peers[0].seconds_per_microbatch, 0.25);
  EXPECT_EQ(now.stages[1].peers[0].state, "ready");
  ASSERT_EQ(now.stages[1].shadows.size(), 1U);
  EXPECT_EQ(now.stages[1].shadows[0].serves, 0U);
  EXPECT_EQ(now.stages[1].shadows[0].state, "fetching");
}

// The lost are shown where they are missed, without a share, and do not pile up.
TEST_F(Status, LostPeersAreShownUntilOthersTookTheirPlaces) {
  const Seat a = bench.seated(1), b = bench.seated(1);
  commit(0, 3,
         {{.peer = a.peer, .stage = StageId{1}, .microbatches = 1},
          {.peer = b.peer, .stage = StageId{1}, .microbatches = 3}});
  EXPECT_EQ(status().stages[1].peers.at(1).share, 0.75);
  bench.members.fence(b);
  ASSERT_EQ(status().stages[1].wanted, 1U);
  ASSERT_EQ(status().stages[1].peers.size(), 1U) << "the stage has as many as it wants";
  EXPECT_EQ(status().stages[1].peers[0].share, 1);
  bench.members.fence(a);
  ASSERT_EQ(status().stages[1].peers.size(), 1U) << "one is missed, the one that went last";
  EXPECT_EQ(status().stages[1].peers[0].peer, a.peer.value);
  EXPECT_EQ(status().stages[1].peers[0].state, "lost");
  EXPECT_EQ(status().stages[1].peers[0].share, 0);
  const Seat c = bench.seated(1);
  ASSERT_EQ(status().stages[1].peers.size(), 1U);
  EXPECT_EQ(status().stages[1].peers[0].peer, c.peer.value);
}

// A coordinator that is begun again counts on, by what the one before wrote down.
TEST_F(Status, ANewCoordinatorGoesOnCounting) {
  bench.life.move_to(life::Training{});
  stats.on_training_started(bench.alarms.now());
  bench.clock.run_for(2s);
  wire::Reduced reduced;
  reduced.mutable_boundary()->set_forward_codec(50);
  stats.on_reduced(reduced);
  commit(0, 3.5);
  stats.on_evaluated(3.25);
  const auto totals = parse_run_totals(to_text(run_totals(sources())));
  ASSERT_TRUE(totals) << totals.error().what;
  EXPECT_EQ(*totals, run_totals(sources()));
  const RunStatus before = status();

  stats = RunStats(2);
  bench.clock.run_for(100s);  // nobody led
  stats.restore(*totals);
  stats.on_training_started(bench.alarms.now());
  EXPECT_EQ(status().elapsed_seconds, 2);
  EXPECT_FALSE(status().tokens_per_second.has_value()) << "not known yet";
  EXPECT_FALSE(status().eta_seconds.has_value());
  bench.clock.run_for(2s);
  commit(1, 2.5);
  const RunStatus now = status();
  EXPECT_EQ(now.elapsed_seconds, 4);
  EXPECT_EQ(now.mean_tokens_per_second, static_cast<double>(now.tokens) / 4);
  EXPECT_EQ(now.losses, (std::vector{3.5, 2.5}));
  EXPECT_EQ(now.held_out_loss, 3.25);
  EXPECT_EQ(now.reduce_bytes, 2000U);
  EXPECT_EQ(now.boundaries[0].forward_codec_bytes, before.boundaries[0].forward_codec_bytes);
  EXPECT_EQ(now.since_step, 0U);
}

// With a journal of an earlier version sums begin where it ended, and say so.
TEST_F(Status, SumsThatLackABeginningSayWhereTheyBegin) {
  bench.committed(2);
  stats.nothing_known_before(2);
  stats.on_training_started(bench.alarms.now());
  EXPECT_FALSE(status().mean_tokens_per_second.has_value());
  bench.clock.run_for(2s);
  commit(2, 3);
  EXPECT_EQ(status().since_step, 2U);
  EXPECT_EQ(status().mean_tokens_per_second,
            static_cast<double>(bench.options.config.tokens_per_step()) / 2);
  stats.on_era(1);
  EXPECT_EQ(status().since_step, 1U) << "what was before the checkpoint is computed again";
}

TEST_F(Status, TimeStandsStillWhenTheRunIsOver) {
  bench.life.move_to(life::Training{});
  stats.on_training_started(bench.alarms.now());
  bench.clock.run_for(2s);
  commit(0, 3.5);
  bench.clock.run_for(3s);
  EXPECT_EQ(status().elapsed_seconds, 5);
  bench.life.move_to(life::Ended{.exit_code = 0, .sentence = "finished 1 steps"});
  EXPECT_EQ(status().elapsed_seconds, 2) << "up to the last commit, as the tokens are";
}

TEST_F(Status, WhoAloneHoldsAStageIsNamed) {
  EXPECT_EQ(status().unprotected, "");
  bench.life.move_to(life::Training{});
  const Seat a = bench.seated(0), b = bench.seated(1);
  bench.seated(1);
  bench.members.at(a.peer).name = "gpu-box";
  EXPECT_EQ(status().unprotected,
            "gpu-box of stage 0: nobody else holds its state; if it is lost, the run goes back to "
            "its beginning");
  bench.members.fence(b);
  EXPECT_NE(status().unprotected.find("gpu-box of stage 0, "), std::string::npos);
  bench.seated(0);
  bench.seated(1);
  EXPECT_EQ(status().unprotected, "");
}

TEST_F(Status, EventsSayHowSeriousTheyAre) {
  bench.events.event("start", "2 peers");
  bench.events.event("waiting", "nobody is there", LogLevel::kWarn);
  const RunStatus now = status();
  ASSERT_EQ(now.events.size(), 2U);
  EXPECT_EQ(now.events[0].level, "info");
  EXPECT_EQ(now.events[1].level, "warn");
}

TEST_F(Status, NumbersOfTheRunAreThoseOfItsCommits) {
  bench.life.move_to(life::Training{});
  stats.on_training_started(bench.alarms.now());
  bench.clock.run_for(2s);
  commit(0, 3.5);
  bench.clock.run_for(2s);
  commit(1, 2.5);
  const RunStatus now = status();
  EXPECT_EQ(now.state, "training");
  EXPECT_EQ(now.step, 2U);
  EXPECT_EQ(now.version, 2U);
  EXPECT_EQ(now.loss, 2.5);
  EXPECT_EQ(now.losses, (std::vector{3.5, 2.5}));
  EXPECT_EQ(now.tokens, 2 * bench.options.config.tokens_per_step());
  EXPECT_EQ(now.tokens_per_second, 8);
  EXPECT_EQ(now.eta_seconds, 4) << "two steps are left";
  EXPECT_EQ(now.elapsed_seconds, 4);
  EXPECT_EQ(now.reduce_bytes, 2000U);
}

TEST_F(Status, AnOpenEvaluationIsShownAsLongAsTheRunTrains) {
  RunSequence& sequence = bench.sequence;
  sequence = RunSequence({.steps = 4, .eval_every_steps = 1, .eval = true, .begin = 1});
  sequence.take_openings();
  ASSERT_EQ(sequence.open_evals(), 1U);
  EXPECT_EQ(status().state, "waiting");
  bench.life.move_to(life::Training{});
  EXPECT_EQ(status().state, "evaluating");
  bench.life.move_to(life::Ended{.exit_code = 0, .sentence = "finished 4 steps"});
  EXPECT_EQ(status().state, "done");
  EXPECT_EQ(status().sentence, "finished 4 steps");
}

TEST_F(Status, BytesOfACheckpointAreNoControlBytes) {
  const Seat a = bench.seated(0);
  EXPECT_EQ(status().control_bytes, 15U) << "sent and received on its connection";
  EXPECT_EQ(status().checkpoint_bytes, 0U);
  for (int peer = 2; peer <= 10; ++peer) bench.seated(1);
  bench.checkpointer.begin_last({.version = 8, .updates = 8, .tokens = 512});
  bench.sink.work();
  wire::CheckpointPiece piece;
  piece.set_checkpoint(bench.told<wire::SaveStage>(a, MessageKind::kSaveStage).back().checkpoint());
  piece.set_stage(0);
  const Frame frame = make_frame(MessageKind::kCheckpointPiece, piece, {SharedBytes(Buffer(7))});
  bench.checkpointer.on_piece(a, frame, [](const Result<Frame>&) {});
  EXPECT_EQ(status().checkpoint_bytes, frame.wire_bytes());
  EXPECT_EQ(status().control_bytes, 150U - frame.wire_bytes());
}

TEST_F(Status, TheJsonSaysTheSame) {
  bench.seated(0);
  commit(0, 3.5);
  const RunStatus now = status();
  const auto read = parse_status(to_json(now));
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(to_json(*read), to_json(*parse_status(to_json(*read))));
  EXPECT_EQ(read->loss, 3.5);
  EXPECT_EQ(read->held_out_loss, std::nullopt);
  EXPECT_EQ(read->stages[0].peers[0].address, now.stages[0].peers[0].address);
  EXPECT_EQ(read->boundaries[0].forward_codec, now.boundaries[0].forward_codec);
}

}  // namespace
}  // namespace swarmline
