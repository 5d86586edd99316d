#include "pipeline/coordinator/run/segments.h"

#include <gtest/gtest.h>

#include "engine/config/load.h"
#include "tests/golden/golden.h"

namespace swarmline {
namespace {

RunConfig some_config() {
  RunConfig config;
  config.data.files = {"texts/*.txt"};
  config.batch = {.batch = 8, .microbatch = 2, .sequence = 16};
  return config;
}

SegmentWish wish_of(const RunConfig& config) {
  return {.config = config, .vocab = 257, .tokenizer = "bytes"};
}

RunSegments begun() {
  return {**next_segment({}, wish_of(some_config()), 0)};
}

// Records what a coordinator with that config does that goes on after `version`.
void go_on(RunSegments& recorded, const SegmentWish& wish, std::uint64_t version) {
  auto next = next_segment(recorded, wish, version);
  ASSERT_TRUE(next) << next.error().what;
  if (*next) recorded.push_back(**next);
}

TEST(Segments, ARunBeginsWithItsFirstAndTheSameConfigBeginsNoOther) {
  const RunSegments recorded = begun();
  EXPECT_EQ(recorded[0].number, 1U);
  EXPECT_EQ(recorded[0].first_version, 0U);
  EXPECT_EQ(sentence_of(recorded[0]), "segment 1 from step 1");
  EXPECT_FALSE(*next_segment(recorded, wish_of(some_config()), 0));
  RunConfig other_peers = some_config();
  other_peers.pipeline.peers = {3};
  other_peers.net.heartbeat_seconds = 2;
  EXPECT_FALSE(*next_segment(recorded, wish_of(other_peers), 7));
  EXPECT_FALSE(needs_new_era(recorded, wish_of(other_peers)));
}

TEST(Segments, AnotherBatchGoesOnInTheDataWhereTheOneBeforeGotTo) {
  RunSegments recorded = begun();
  RunConfig config = some_config();
  config.batch.batch = 6;
  config.optimizer.lr = 1e-4;
  EXPECT_TRUE(needs_new_era(recorded, wish_of(config)));
  go_on(recorded, wish_of(config), 10);
  ASSERT_EQ(recorded.size(), 2U);
  EXPECT_EQ(sentence_of(recorded[1]),
            "segment 2 from step 11: batch.batch 8 -> 6, optimizer.lr 0.0003 -> 0.0001");
  EXPECT_EQ(recorded[1].config.data.from_step, 10U);
  EXPECT_EQ(recorded[1].config.data.from_sequence, 80U);
  EXPECT_EQ(tokens_until(recorded, 10), 80U * 16);
  EXPECT_EQ(tokens_until(recorded, 12), 92U * 16);
  // A learning rate alone moves nothing.
  config.optimizer.lr = 1e-5;
  go_on(recorded, wish_of(config), 12);
  EXPECT_EQ(recorded[2].config.data.from_step, 10U);
  EXPECT_EQ(recorded[2].config.data.from_sequence, 80U);
  config.batch.batch = 8;
  go_on(recorded, wish_of(config), 13);
  EXPECT_EQ(recorded[3].config.data.from_step, 13U);
  EXPECT_EQ(recorded[3].config.data.from_sequence, 98U);
  EXPECT_EQ(tokens_until(recorded, 14), 106U * 16);
}

TEST(Segments, OtherDataBeginsAtItsOwnBeginning) {
  RunSegments recorded = begun();
  RunConfig config = some_config();
  config.data.files = {"more/*.txt"};
  config.batch.batch = 4;
  go_on(recorded, wish_of(config), 5);
  EXPECT_EQ(recorded[1].config.data.from_step, 5U);
  EXPECT_EQ(recorded[1].config.data.from_sequence, 0U);
  EXPECT_NE(sentence_of(recorded[1]).find("the new data begins with its first sequence"),
            std::string::npos);
  const std::string text = text_for_peers(to_toml(config), recorded[1]);
  EXPECT_EQ(run_config_from_text(text, "text")->data.from_step, 5U);
  EXPECT_EQ(text_for_peers("as it is", recorded[0]), "as it is");
}

// The checkpoint that it began with is damaged: the steps before it are computed again.
TEST(Segments, AnEraThatBeginsBeforeTheNewestTakesItAlong) {
  RunSegments recorded = begun();
  RunConfig config = some_config();
  config.batch.batch = 6;
  go_on(recorded, wish_of(config), 10);
  go_on(recorded, wish_of(config), 7);
  ASSERT_EQ(recorded.size(), 3U);
  EXPECT_EQ(recorded[2].first_version, 7U);
  EXPECT_EQ(recorded[2].config.data.from_sequence, 56U);
  const RunSegments segments = in_force(recorded);
  ASSERT_EQ(segments.size(), 2U);
  EXPECT_EQ(segments[1].number, 3U);
  EXPECT_EQ(segment_at(segments, 6)->number, 1U);
  EXPECT_EQ(segment_at(segments, 12)->number, 3U);
  // Back to the settings of before, from before: nothing of what began later is left.
  go_on(recorded, wish_of(some_config()), 3);
  ASSERT_EQ(recorded.size(), 4U);
  EXPECT_TRUE(recorded[3].changes.empty());
  EXPECT_EQ(in_force(recorded).size(), 2U);
  EXPECT_EQ(segment_at(in_force(recorded), 100)->config.batch.batch, 8U);
}

TEST(Segments, WhoTakesOverChangesNothing) {
  RunSegments recorded = begun();
  RunConfig config = some_config();
  config.optimizer.lr = 1e-4;
  go_on(recorded, wish_of(config), 10);
  SegmentWish standby = wish_of(some_config());
  standby.changes = false;
  EXPECT_FALSE(needs_new_era(recorded, standby));
  EXPECT_FALSE(*next_segment(recorded, standby, 20));
  go_on(recorded, standby, 8);
  ASSERT_EQ(recorded.size(), 3U);
  EXPECT_EQ(recorded[2].config.optimizer.lr, 1e-4);
}

TEST(Segments, TheDelayHoldsSinceItBegan) {
  RunSegments recorded = begun();
  EXPECT_EQ(delayed_since(recorded), 0U);
  RunConfig config = some_config();
  config.pipeline.delay = 1;
  go_on(recorded, wish_of(config), 4);
  EXPECT_EQ(delayed_since(recorded), 4U);
  config.optimizer.lr = 1e-4;
  go_on(recorded, wish_of(config), 9);
  EXPECT_EQ(delayed_since(recorded), 4U);
}

// The rate of a schedule that ends with the run is another one then; peers need not know.
TEST(Segments, MoreStepsAreASegmentWhereTheScheduleEndsWithTheRun) {
  RunSegments recorded = begun();
  RunConfig config = some_config();
  config.run.steps = 200;
  EXPECT_FALSE(needs_new_era(recorded, wish_of(config)));
  go_on(recorded, wish_of(config), 4);
  ASSERT_EQ(recorded.size(), 2U);
  EXPECT_EQ(sentence_of(recorded[1]), "segment 2 from step 5: run.steps 100 -> 200");
  recorded = begun();
  recorded[0].config.optimizer.lr_decay_steps = config.optimizer.lr_decay_steps = 50;
  EXPECT_FALSE(*next_segment(recorded, wish_of(config), 4));
}

TEST(Segments, WhatCannotChangeIsRefused) {
  const RunSegments recorded = begun();
  EXPECT_FALSE(refusal_of(recorded, wish_of(some_config())));
  RunConfig config = some_config();
  config.model.layers = 2;
  EXPECT_NE(refusal_of(recorded, wish_of(config))->find("model.layers: found 2, but the run began"),
            std::string::npos);
  config = some_config();
  config.data.files = {"other"};
  SegmentWish wish = wish_of(config);
  EXPECT_FALSE(refusal_of(recorded, wish));
  wish.tokenizer = "bpe 12ab";
  EXPECT_NE(refusal_of(recorded, wish)->find("bpe 12ab"), std::string::npos);
  wish.vocab = 300;
  EXPECT_NE(refusal_of(recorded, wish)->find("a vocabulary of 300"), std::string::npos);
}

TEST(Segments, AreReadAsTheyWereWritten) {
  RunSegments recorded = begun();
  RunConfig config = some_config();
  config.batch.batch = 6;
  go_on(recorded, wish_of(config), 10);
  recorded[1].era = 3;
  recorded[1].wall_seconds = 1763900000.5;
  const auto read = parse_segment(to_text(recorded[1]));
  ASSERT_TRUE(read) << read.error().what;
  EXPECT_EQ(to_text(*read), to_text(recorded[1]));
  EXPECT_EQ(read->config, recorded[1].config);
  EXPECT_EQ(read->changes, recorded[1].changes);
  // Without its last member, the config: another key of configs is no other format of segments.
  const std::string text = to_text(recorded[1]);
  expect_golden("journal/segment.json", text.substr(0, text.find(",\"config\":")) + "}\n");
  for (const char* bad : {"", "{}", R"({"format":1,"number":1,"first_step":0})",
                          R"({"format":1,"number":1,"first_step":1,"config":"?"})"})
    EXPECT_EQ(parse_segment(bad).error().code, ErrorCode::kCorrupt) << bad;
  EXPECT_EQ(parse_segment(R"({"format":2})").error().code, ErrorCode::kIncompatible);
}

TEST(Segments, ARunIsChangedSoManyTimesAndNoMore) {
  RunSegments recorded = begun();
  while (recorded.size() < kSegmentsMax) {
    recorded.push_back(recorded.back());
    ++recorded.back().number;
  }
  RunConfig config = some_config();
  config.optimizer.lr = 1;
  EXPECT_EQ(next_segment(recorded, wish_of(config), 1).error().code, ErrorCode::kUserMistake);
}

}  // namespace
}  // namespace swarmline
