// Checkpoints without a coordinator: when one is due, what ends a try, and what follows it.
#include "pipeline/coordinator/states/checkpointer.h"

#include <functional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "pipeline/coordinator/run/run_identity.h"
#include "pipeline/protocol/knobs.h"
#include "tests/coordinator/fake_sink.h"
#include "tests/coordinator/parts_bench.h"
#include "tests/harness/mark_expected.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

// ---- When it is due -----------------------------------------------------------------------------

class Schedule : public ::testing::Test {
 protected:
  CheckpointSection config;
  CheckpointSchedule schedule{config};
  Instant now{1h};
};

TEST_F(Schedule, ByStepsAndByTime) {
  config.every_steps = 5;
  config.every_minutes = 0;
  schedule.start(now);
  EXPECT_FALSE(schedule.is_due(4, now + 24h));
  EXPECT_TRUE(schedule.is_due(5, now));

  config = {};  // nobody has said anything
  EXPECT_FALSE(schedule.is_due(5, now + 9min));
  const MarkExpected by_time("checkpoint_schedule.by_time");
  EXPECT_TRUE(schedule.is_due(5, now + 10min));
  schedule.on_begun(now + 10min);
  EXPECT_FALSE(schedule.is_due(6, now + 19min));
  EXPECT_TRUE(schedule.is_due(7, now + 20min));
}

TEST_F(Schedule, OnlyWhoSaysSoHasNone) {
  config.every_minutes = 0;
  schedule.start(now);
  EXPECT_FALSE(schedule.is_due(100, now + 1000h));
}

TEST_F(Schedule, WhatFailedIsTriedAgainLaterAndLater) {
  config.every_steps = 5;
  schedule.start(now);
  Duration pause = knobs().checkpoint_pause_min;
  for (std::uint32_t times = 1; times < 40; ++times) {
    schedule.on_begun(now);
    schedule.on_failed(now);
    EXPECT_EQ(schedule.failures(), times);
    EXPECT_FALSE(schedule.is_due(5, now + pause - 1ms)) << times;
    EXPECT_TRUE(schedule.is_due(6, now + pause)) << times;
    pause = std::min(2 * pause, knobs().checkpoint_pause_max);
  }
  schedule.on_done();
  EXPECT_FALSE(schedule.is_due(6, now));
}

TEST_F(Schedule, WhatWasInterruptedFollowsAtTheNextCommit) {
  schedule.start(now);
  schedule.on_begun(now);
  schedule.on_interrupted();
  EXPECT_TRUE(schedule.is_due(6, now));
  schedule.forget();
  EXPECT_FALSE(schedule.is_due(6, now));
}

// ---- The one under way --------------------------------------------------------------------------

class Checkpoints : public ::testing::Test {
 protected:
  using Answer = std::optional<Result<void>>;  // empty: none yet

  void begin(std::uint64_t version) {
    checkpointer.on_committed({.version = version, .updates = version, .tokens = 64 * version});
    heard();
  }
  bool begin_last() {
    const bool begun = checkpointer.begin_last({.version = 8, .updates = 8, .tokens = 512});
    heard();
    return begun;
  }
  void heard() {
    const auto told = bench.told<wire::SaveStage>(a, MessageKind::kSaveStage);
    if (!told.empty()) token = told.back().checkpoint();
  }
  // Sent; the sink has not carried it out.
  std::shared_ptr<Answer> send_later(const Seat& seat, const std::string& sha256 = "right",
                                     const std::string& error = {}) {
    wire::CheckpointPiece piece;
    piece.set_checkpoint(token);
    piece.set_stage(seat.stage.value);
    piece.set_last(true);
    piece.set_size(3);
    piece.set_sha256(sha256);
    piece.set_error(error);
    Frame frame = make_frame(MessageKind::kCheckpointPiece, piece, {SharedBytes(Buffer(3))});
    auto answered = std::make_shared<Answer>();
    checkpointer.on_piece(seat, frame, [answered](const Result<Frame>& answer) {
      *answered = answer ? Result<void>() : std::unexpected(answer.error());
    });
    return answered;
  }
  bool send(const Seat& seat, const std::string& sha256 = "right") {
    const auto answered = send_later(seat, sha256);
    sink.work();
    bench.flush();
    return *answered && (*answered)->has_value();
  }
  // Why the newest one was given up.
  std::string abandoned() {
    bench.flush();
    std::string why;
    for (const EventRecord& event : *bench.store.events(100))
      if (event.kind == "checkpoint_abandoned") why = event.detail;
    return why;
  }

  PartsBench bench;
  Seat a = bench.seated(0), b = bench.seated(1);
  RunIdentity identity;
  FakeSink sink;
  Checkpointer checkpointer{{.shape = bench.shape,
                             .identity = identity,
                             .alarms = bench.alarms,
                             .sink = sink,
                             .journal = bench.journal,
                             .detector = bench.detector,
                             .members = bench.members,
                             .outbox = bench.outbox,
                             .events = bench.events,
                             .rulings = bench.rulings}};
  std::string token;

  void SetUp() override {
    checkpointer.start(bench.alarms.now());
    bench.clock.run_for(11min);                      // one is due
    bench.detector.begin(bench.alarms.now() + 24h);  // nobody has stopped this process
  }
};

TEST_F(Checkpoints, IsInPlaceWhenEveryStagesFileIsWhole) {
  begin(8);
  EXPECT_TRUE(checkpointer.is_saving(a));
  EXPECT_TRUE(send(a));
  checkpointer.check_invariants();
  EXPECT_FALSE(checkpointer.has_saved(8));
  EXPECT_TRUE(send(b));
  EXPECT_TRUE(checkpointer.has_saved(8));
  EXPECT_EQ(checkpointer.last(), "checkpoints/step-8");
  EXPECT_EQ(bench.journal.read()->checkpoint, "checkpoints/step-8");
  EXPECT_FALSE(checkpointer.is_active());
  EXPECT_FALSE(send(b)) << "nobody asks for it any more";
}

TEST_F(Checkpoints, ALostSaverEndsItAndTheNextCommitHasAnother) {
  begin(8);
  const MarkExpected given_up("checkpointer.abandoned");
  checkpointer.on_seat_lost(bench.lost(b));
  EXPECT_FALSE(checkpointer.is_active());
  EXPECT_EQ(sink.abandoned, 1);
  EXPECT_FALSE(send(a));
  bench.seated(1);
  begin(9);
  EXPECT_TRUE(checkpointer.is_active());
}

TEST_F(Checkpoints, ADamagedFileEndsThisTryAlone) {
  const MarkExpected damaged("checkpointer.damaged");
  for (int times = 0; times < 40; ++times) {
    bench.clock.run_for(knobs().checkpoint_pause_max);
    begin(8);
    ASSERT_TRUE(checkpointer.is_active()) << times;
    EXPECT_FALSE(send(a, "wrong"));
    EXPECT_FALSE(checkpointer.is_active());
  }
  EXPECT_FALSE(bench.rulings.any());
}

// [The disk is full, at any moment of it: the run goes on, and it is tried again.]
TEST_F(Checkpoints, AFullDiskCostsATryNotTheRun) {
  const MarkExpected failed("checkpointer.failed");
  std::string* const errors[] = {&sink.begin_error, &sink.write_error, &sink.commit_error};
  for (std::string* error : errors) {
    *error = "no space left";
    bench.clock.run_for(knobs().checkpoint_pause_max);
    begin(8);
    send(a);
    send(b);
    EXPECT_FALSE(bench.rulings.any());
    EXPECT_FALSE(checkpointer.is_active());
    EXPECT_EQ(abandoned(), "step-8: it can't be written: no space left");
    begin(9);
    EXPECT_FALSE(checkpointer.is_active()) << "not at once";
    error->clear();
  }
  bench.clock.run_for(knobs().checkpoint_pause_max);
  begin(10);
  EXPECT_TRUE(send(a) && send(b));
  EXPECT_TRUE(checkpointer.has_saved(10));
}

// [A saver says that it can't.]
TEST_F(Checkpoints, ASaverThatFailsEndsThisTryAlone) {
  const MarkExpected failed("checkpointer.saver_failed");
  begin(8);
  send_later(b, "", "out of memory");
  EXPECT_FALSE(checkpointer.is_active());
  EXPECT_FALSE(bench.rulings.any());
  EXPECT_NE(abandoned().find("can't save its stage: out of memory"), std::string::npos);
}

// [Nothing more comes from one stage; or the disk does not come back.] Time alone ends nothing.
TEST_F(Checkpoints, WithoutProgressItIsGivenUp) {
  const MarkExpected late("checkpointer.no_progress");
  begin(8);
  sink.work();
  bench.clock.run_for(knobs().checkpoint_progress - 1s);
  EXPECT_TRUE(send(a)) << "late, and still in time";
  bench.clock.run_for(2s);
  EXPECT_FALSE(checkpointer.is_active());
  EXPECT_NE(abandoned().find("stage 1 made no progress"), std::string::npos) << abandoned();

  bench.clock.run_for(1s);
  begin(9);
  send_later(a);  // the sink stands still
  send_later(b);
  bench.clock.run_for(knobs().checkpoint_progress + 1s);
  EXPECT_FALSE(checkpointer.is_active());
  EXPECT_FALSE(bench.rulings.any());
}

// [The answer to a piece came too late: its sender says it once more.]
TEST_F(Checkpoints, APieceThatIsSentAgainIsAnsweredAndCountsOnce) {
  const MarkExpected again("checkpointer.piece_sent_again");
  begin(8);
  const auto first = send_later(a), second = send_later(a);
  sink.work();
  bench.flush();
  EXPECT_FALSE(first->has_value()) << "nobody waits for that one";
  EXPECT_TRUE(second->has_value() && (*second)->has_value());
  EXPECT_EQ(sink.written, 3U);
  EXPECT_TRUE(send(a)) << "it was whole before";
  EXPECT_EQ(sink.written, 3U);
}

// Who writes its stage itself says so, hears when it may begin, and says how far it is. All of a
// stage's members do it the next time, each a part.
TEST_F(Checkpoints, PeersThatSeeTheFolderWriteThePartsThemselves) {
  Knobs small = knobs();
  small.part_bytes_min = 64;
  const TurnedKnobs turned(small);
  const Seat mate = bench.seated(1);
  const MarkExpected written("checkpointer.part_written_by_its_peer"),
      parts("checkpointer.stage_in_parts");
  begin(8);
  const auto asked = bench.told<wire::SaveStage>(b, MessageKind::kSaveStage);
  ASSERT_EQ(asked.size(), 1U);
  EXPECT_EQ(asked[0].folder().token(), "t");
  EXPECT_EQ(asked[0].parts(), 1U);
  EXPECT_TRUE(bench.told<wire::SaveStage>(mate, MessageKind::kSaveStage).empty());
  const auto says = [&](const Seat& seat, std::uint32_t part, std::uint64_t from, std::uint64_t to,
                        bool last) {
    wire::CheckpointPiece piece;
    piece.set_checkpoint(token);
    piece.set_stage(seat.stage.value);
    piece.set_part(part);
    piece.set_written(true);
    piece.set_offset(from);
    piece.set_size(to);
    piece.set_last(last);
    auto answered = std::make_shared<Answer>();
    checkpointer.on_piece(seat, make_frame(MessageKind::kCheckpointPiece, piece),
                          [answered](const Result<Frame>& answer) {
                            *answered = answer ? Result<void>() : std::unexpected(answer.error());
                          });
    bench.flush();
    return answered;
  };
  const auto opened = says(b, 0, 0, 0, false);
  EXPECT_FALSE(opened->has_value()) << "the folder is not there yet";
  sink.work();
  bench.flush();
  EXPECT_TRUE(opened->has_value() && (*opened)->has_value());
  EXPECT_TRUE(says(b, 0, 0, 10, false)->has_value());
  EXPECT_FALSE((*says(b, 0, 5, 20, false))->has_value()) << "out of order";
  says(b, 0, 10, 20, true);
  EXPECT_TRUE(send(a)) << "the other stage sends its pieces";
  EXPECT_TRUE(checkpointer.has_saved(8));
  EXPECT_EQ(sink.adopted, (std::vector<CheckpointPart>{{StageId{1}, 0}}));

  bench.clock.run_for(11min);
  begin(9);
  EXPECT_EQ(bench.told<wire::SaveStage>(b, MessageKind::kSaveStage).back().parts(), 2U);
  EXPECT_EQ(bench.told<wire::SaveStage>(mate, MessageKind::kSaveStage).back().part(), 1U);
  for (const auto& [seat, part] : {std::pair(b, 0U), std::pair(mate, 1U)}) {
    says(seat, part, 0, 0, false);
    sink.work();
    says(seat, part, 0, 10, true);
  }
  EXPECT_TRUE(send(a));
  EXPECT_TRUE(checkpointer.has_saved(9));
  EXPECT_EQ(sink.adopted.size(), 3U);
}

// The last version's is tried until it is in place, or has failed very often.
TEST_F(Checkpoints, TheLastOneIsTriedAgainAndAgain) {
  const MarkExpected again("checkpointer.last_again"), given_up("checkpointer.last_given_up");
  sink.commit_error = "no space left";
  for (std::uint32_t times = 0; times < knobs().final_checkpoints_max; ++times) {
    EXPECT_FALSE(bench.rulings.any());
    EXPECT_EQ(begin_last(), times == 0);
    const std::size_t settled = bench.settled;
    bench.clock.run_for(knobs().checkpoint_pause_max);
    if (times > 0) {
      EXPECT_GT(bench.settled, settled) << "it is asked again";
      ASSERT_TRUE(begin_last());
    }
    EXPECT_TRUE(send(a) && send(b));
    EXPECT_FALSE(checkpointer.has_saved(8));
  }
  EXPECT_TRUE(begin_last());
  const auto failure = bench.rulings.take_failure();
  ASSERT_TRUE(failure);
  EXPECT_NE(failure->find("no space left"), std::string::npos) << *failure;
}

TEST_F(Checkpoints, AStageThatIsBeingTakenOverHasNoneNow) {
  bench.lost(b);
  begin(8);
  EXPECT_FALSE(checkpointer.is_active());
}

}  // namespace
}  // namespace swarmline
