// A stage's state that was saved and loaded elsewhere is the same state: its bits, and what the
// next steps make of it.
#include "pipeline/stage/common/parameter_state.h"

#include <map>

#include <gtest/gtest.h>

#include "pipeline/stage/common/arena_model.h"
#include "tests/optimizer/layouts.h"

namespace swarmline {
namespace {

using testing::mixed_layout;

class ParameterStateTest : public ::testing::TestWithParam<std::tuple<MomentsKind, std::uint32_t>> {
 protected:
  ParameterStateTest() {
    config_.optimizer.state = std::get<0>(GetParam());
    config_.pipeline.delay = std::get<1>(GetParam());
  }

  // Step `step` with a gradient of its own.
  static void apply(ParameterState& state, std::uint64_t step) {
    const std::vector<float> gradient = testing::arena(mixed_layout(), step + 1, 1.0F);
    const BytesView bytes = as_bytes(std::span(gradient));
    std::ranges::copy(bytes, state.reduced().begin());
    ASSERT_TRUE(state.apply({.learning_rate = 0.01,
                             .clip_scale = 0.5,
                             .bias_correction1 = 0.3,
                             .bias_correction2 = 0.2},
                            false));
  }

  RunConfig config_;
};

TEST_P(ParameterStateTest, WhatWasSavedGoesOnAsIfNothingHadHappened) {
  ArenaModel model(mixed_layout()), other_model(mixed_layout());
  ParameterState state(model, config_), other(other_model, config_);
  Buffer before;
  for (std::uint64_t step = 0; step < 3; ++step) {
    before = Buffer::copy_of(state.committed_parameters());
    apply(state, step);
  }
  auto saved = state.save();
  ASSERT_TRUE(saved) << saved.error().what;
  EXPECT_EQ(saved->size(), state.saved_bytes());
  ASSERT_TRUE(other.load(Version{3}, saved->bytes()));
  EXPECT_EQ(*other.digest(), *state.digest());
  if (config_.pipeline.delay == 1) {
    ASSERT_TRUE(other.use(Version{2}));
    EXPECT_TRUE(std::ranges::equal(other_model.parameters(), before.bytes()));
    ASSERT_TRUE(other.use(Version{3}));
    EXPECT_TRUE(std::ranges::equal(other_model.parameters(), other.committed_parameters()));
  }
  for (std::uint64_t step = 3; step < 6; ++step) {
    apply(state, step);
    apply(other, step);
    EXPECT_EQ(*other.digest(), *state.digest()) << step;
  }
  ASSERT_TRUE(other.save());
}

TEST_P(ParameterStateTest, TwoVersionsAreComputedOnInTurnWithoutACopy) {
  if (config_.pipeline.delay == 0) return;  // one version
  ArenaModel model(mixed_layout());
  ParameterState state(model, config_);
  for (std::uint64_t step = 0; step < 3; ++step) {
    apply(state, step);
    ASSERT_TRUE(state.use(Version{step + 1}));
  }
  std::map<std::uint64_t, std::pair<const std::byte*, Buffer>> seen;
  for (int turn = 0; turn < 2; ++turn) {
    for (const std::uint64_t version : {3U, 2U}) {
      ASSERT_TRUE(state.use(Version{version}));
      const MutableBytes bytes = model.parameters();
      if (turn == 0) seen[version] = {bytes.data(), Buffer::copy_of(bytes)};
      EXPECT_EQ(bytes.data(), seen.at(version).first);
      EXPECT_TRUE(std::ranges::equal(bytes, seen.at(version).second.bytes()));
    }
  }
  EXPECT_FALSE(std::ranges::equal(seen.at(2).second.bytes(), seen.at(3).second.bytes()));
  EXPECT_FALSE(state.use(Version{1})) << "it is committed past";
}

TEST_P(ParameterStateTest, APartOfWhatIsSavedHasItsBytes) {
  ArenaModel model(mixed_layout());
  ParameterState state(model, config_);
  for (std::uint64_t step = 0; step < 2; ++step) apply(state, step);
  const auto whole = state.save();
  ASSERT_TRUE(whole) << whole.error().what;
  const std::uint64_t parameters = state.committed_parameters().size();
  for (const auto& [first, bytes] : std::vector<std::pair<std::uint64_t, std::uint64_t>>{
           {0, 0},
           {0, 4},
           {parameters - 4, 8},
           {parameters, whole->size() - parameters},
           {4, whole->size() - 8},
           {whole->size(), 0}}) {
    const auto part = state.save(first, bytes);
    ASSERT_TRUE(part) << part.error().what;
    EXPECT_TRUE(std::ranges::equal(part->bytes(), whole->bytes().subspan(first, bytes)))
        << first << " " << bytes;
  }
}

// Without the version before, too, which then comes with the next commit; and nothing of another
// size.
TEST_P(ParameterStateTest, TakesTheCommittedStateAloneAndNothingElse) {
  ArenaModel model(mixed_layout()), other_model(mixed_layout());
  ParameterState state(model, config_), other(other_model, config_);
  apply(state, 0);
  const auto alone = state.save(0, state.committed_state_bytes());
  ASSERT_TRUE(alone);
  ASSERT_TRUE(other.load(Version{1}, alone->bytes()));
  EXPECT_EQ(*other.digest(), *state.digest());
  EXPECT_EQ(other.save().has_value(), config_.pipeline.delay == 0);
  apply(state, 1);
  apply(other, 1);
  const auto one = state.save(), another = other.save();
  ASSERT_TRUE(one && another);
  EXPECT_TRUE(std::ranges::equal(one->bytes(), another->bytes()));
  const auto cut = alone->bytes().first(alone->size() - 1);
  EXPECT_EQ(other.load(Version{1}, cut).error().code, ErrorCode::kIncompatible);
}

TEST_P(ParameterStateTest, TheFirstVersionIsTheOneBeforeItselfToo) {
  ArenaModel model(mixed_layout()), other_model(mixed_layout());
  ParameterState state(model, config_), other(other_model, config_);
  const auto saved = state.save();
  ASSERT_TRUE(saved) << saved.error().what;
  ASSERT_TRUE(other.load(Version{0}, saved->bytes()));
  for (std::uint64_t step = 0; step < 2; ++step) {
    apply(state, step);
    apply(other, step);
  }
  EXPECT_EQ(*other.digest(), *state.digest());
}

INSTANTIATE_TEST_SUITE_P(All, ParameterStateTest,
                         ::testing::Combine(::testing::Values(MomentsKind::kF32,
                                                              MomentsKind::k8Bit),
                                            ::testing::Values(0U, 1U)));

}  // namespace
}  // namespace swarmline
