#include "engine/config/begun_run.h"

#include <gtest/gtest.h>

#include "engine/config/load.h"
#include "engine/config/schema.h"

namespace swarmline {
namespace {

RunConfig config_with(std::vector<std::string> overrides) {
  overrides.insert(overrides.begin(), {"data.files=x", "pipeline.stages=2"});
  auto config = run_config_from_text("config_version = 1\n", "t", overrides);
  EXPECT_TRUE(config) << config.error().what;
  return *config;
}

// What to write in a config, and in which of the three ways the key may change.
enum class May : std::uint8_t { kAlways, kAsSegment, kNever };
struct Case {
  const char* override;
  May may;
};

TEST(BegunRun, SaysWhatMayChangeAndHow) {
  constexpr Case kCases[] = {
      {"run.steps=101", May::kAsSegment},  // of the cosine schedule
      {"run.dir=elsewhere", May::kAlways},
      {"run.wait_seconds=7", May::kAlways},
      {"run.seed=2", May::kNever},
      {"run.on_nonfinite=skip", May::kAsSegment},
      {"run.init=\"hf:x\"", May::kNever},
      {"model.layers=4", May::kNever},
      {"model.dropout=0.1", May::kNever},
      {"data.files=y", May::kAsSegment},
      {"data.weights=[2.0]", May::kAsSegment},
      {"data.held_out=0.1", May::kAsSegment},
      {"batch.batch=16", May::kAsSegment},
      {"batch.microbatch=2", May::kAsSegment},
      {"batch.sequence=64", May::kNever},
      {"optimizer.kind=lamb", May::kNever},
      {"optimizer.lr=1e-3", May::kAsSegment},
      {"optimizer.beta1=0.8", May::kNever},
      {"optimizer.weight_decay=0.0", May::kAsSegment},
      {"optimizer.clip=2.0", May::kAsSegment},
      {"optimizer.schedule=linear", May::kAsSegment},
      {"optimizer.warmup_steps=5", May::kAsSegment},
      {"optimizer.lr_decay_steps=5", May::kAsSegment},
      {"optimizer.final_lr=0.2", May::kAsSegment},
      {"optimizer.state=8bit", May::kNever},
      {"pipeline.delay=1", May::kAsSegment},
      {"pipeline.peers=3", May::kAlways},
      {"codec.forward=bf16", May::kAsSegment},
      {"codec.averaging=lin8", May::kAsSegment},
      {"net.heartbeat_seconds=2", May::kAlways},
      {"checkpoint.keep=9", May::kAlways},
      {"eval.every_steps=9", May::kAlways},
      {"money.budget=9", May::kAlways},
  };
  const RunConfig begun = config_with({});
  for (const Case& one : kCases) {
    const RunConfig wanted = config_with({one.override});
    EXPECT_NE(wanted, begun) << one.override;
    EXPECT_EQ(fixed_difference(begun, wanted).has_value(), one.may == May::kNever) << one.override;
    EXPECT_EQ(!segment_changes(begun, wanted).empty(), one.may == May::kAsSegment) << one.override;
  }
}

TEST(BegunRun, TheCutMayChangeAtAnyTime) {
  const RunConfig begun = config_with({}), wanted = config_with({"pipeline.stages=4"});
  EXPECT_FALSE(fixed_difference(begun, wanted));
  EXPECT_TRUE(segment_changes(begun, wanted).empty());
}

TEST(BegunRun, ChangesSayBothValues) {
  const RunConfig begun = config_with({});
  const auto changes =
      segment_changes(begun, config_with({"optimizer.lr=1e-3", "codec.forward=bf16"}));
  ASSERT_EQ(changes.size(), 2U);
  EXPECT_EQ(changes[0], (KeyChange{"optimizer.lr", "0.0003", "0.001"}));
  EXPECT_EQ(changes[1], (KeyChange{"codec.forward", "\"h8\"", "\"bf16\""}));
  EXPECT_TRUE(changes_codecs(changes));
  EXPECT_FALSE(changes_data(changes));
}

TEST(BegunRun, MoreStepsChangeNothingWhereTheScheduleEndsByItself) {
  const RunConfig begun = config_with({"optimizer.lr_decay_steps=50"});
  EXPECT_TRUE(segment_changes(begun, config_with({"optimizer.lr_decay_steps=50", "run.steps=101"}))
                  .empty());
}

TEST(BegunRun, ASegmentsKeysAreTakenAndNoOthers) {
  const RunConfig run = config_with({"optimizer.lr=1e-3", "batch.batch=16", "data.files=[\"y\"]",
                                     "pipeline.delay=1", "codec.backward=bf16"});
  RunConfig own = config_with({"pipeline.peers=5", "run.steps=7"});
  const RunConfig mixed = with_segment_of(own, run);
  EXPECT_TRUE(segment_changes(run,
                              [&] {
                                RunConfig same_steps = mixed;
                                same_steps.run.steps = run.run.steps;
                                return same_steps;
                              }())
                  .empty());
  EXPECT_EQ(mixed.pipeline.peers, own.pipeline.peers);
  EXPECT_EQ(mixed.run.steps, 7U);
  EXPECT_EQ(with_segment_of(own, run, false).data, own.data);
  EXPECT_EQ(with_segment_of(own, own), own);
}

// A run says it to its peers; where the data begins is no setting.
TEST(BegunRun, WhereTheDataBeginsIsNoChange) {
  const RunConfig begun = config_with({});
  RunConfig placed = begun;
  placed.data.from_step = 7;
  placed.data.from_sequence = 70;
  EXPECT_FALSE(fixed_difference(begun, placed));
  EXPECT_TRUE(segment_changes(begun, placed).empty());
  EXPECT_EQ(to_toml(begun).find("from_step"), std::string::npos);
  EXPECT_EQ(*run_config_from_text(to_toml(placed), "t"), placed);
}

}  // namespace
}  // namespace swarmline
