// A stage's state that was saved and loaded elsewhere is the same state: its bits, and what the
// next steps make of it. On the host, and in a device's memory.
#include "pipeline/stage/common/parameter_state.h"

#include <map>

#include <gtest/gtest.h>

#include "base/byte_ops.h"
#include "kernels/digest.h"
#include "pipeline/stage/common/arena_model.h"
#include "sim/cluster/resident_model.h"
#include "tests/optimizer/layouts.h"

namespace swarmline {
namespace {

using testing::mixed_layout;

enum class Home { kHost, kDevice };

// A model of arenas in one of the two.
class Arenas {
 public:
  explicit Arenas(Home home) : model_(std::make_unique<ArenaModel>(mixed_layout())) {
    if (home == Home::kDevice) model_ = std::make_unique<ResidentModel>(std::move(model_), bus_);
  }
  StageModel& model() { return *model_; }
  const DeviceBus& bus() const { return *bus_; }

 private:
  std::shared_ptr<DeviceBus> bus_ = std::make_shared<DeviceBus>();
  std::unique_ptr<StageModel> model_;
};

class ParameterStateTest
    : public ::testing::TestWithParam<std::tuple<MomentsKind, std::uint32_t, Home>> {
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
    const auto summary = state.take_reduced(0, bytes.size());
    ASSERT_TRUE(summary);
    EXPECT_EQ(summary->digest, kernels::digest(bytes));
    EXPECT_EQ(summary->sum_of_squares, sum_of_squares(bytes, DType::kF32));
    ASSERT_TRUE(state.apply({.learning_rate = 0.01,
                             .clip_scale = 0.5,
                             .bias_correction1 = 0.3,
                             .bias_correction2 = 0.2},
                            false));
  }

  // The committed parameters are what the model computes on from here on, collected.
  static BytesView computed_on(ParameterState& state, StageModel& model, std::uint64_t version) {
    EXPECT_TRUE(state.use(Version{version}));
    EXPECT_TRUE(model.collect_parameters());
    return model.parameters();
  }

  const Home home_ = std::get<2>(GetParam());
  RunConfig config_;
};

TEST_P(ParameterStateTest, WhatWasSavedGoesOnAsIfNothingHadHappened) {
  Arenas arenas(home_), other_arenas(home_);
  StageModel &model = arenas.model(), &other_model = other_arenas.model();
  ParameterState state(model, config_), other(other_model, config_);
  Buffer before;
  for (std::uint64_t step = 0; step < 3; ++step) {
    before = Buffer::copy_of(*state.committed_parameters());
    apply(state, step);
  }
  auto saved = state.save();
  ASSERT_TRUE(saved) << saved.error().what;
  EXPECT_EQ(saved->size(), state.saved_bytes());
  ASSERT_TRUE(other.load(Version{3}, saved->bytes()));
  EXPECT_EQ(*other.digest(), *state.digest());
  if (config_.pipeline.delay == 1) {
    EXPECT_TRUE(same_bytes(computed_on(other, other_model, 2), before.bytes()));
    EXPECT_TRUE(
        std::ranges::equal(computed_on(other, other_model, 3), *other.committed_parameters()));
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
  Arenas arenas(home_);
  StageModel& model = arenas.model();
  ParameterState state(model, config_);
  for (std::uint64_t step = 0; step < 3; ++step) {
    apply(state, step);
    ASSERT_TRUE(state.use(Version{step + 1}));
  }
  std::map<std::uint64_t, std::pair<const std::byte*, Buffer>> seen;
  for (int turn = 0; turn < 2; ++turn) {
    for (const std::uint64_t version : {3U, 2U}) {
      const BytesView bytes = computed_on(state, model, version);
      if (turn == 0) seen[version] = {bytes.data(), Buffer::copy_of(bytes)};
      EXPECT_EQ(bytes.data(), seen.at(version).first);
      EXPECT_TRUE(same_bytes(bytes, seen.at(version).second.bytes()));
    }
  }
  EXPECT_FALSE(same_bytes(seen.at(2).second.bytes(), seen.at(3).second.bytes()));
  EXPECT_FALSE(state.use(Version{1})) << "it is committed past";
}

TEST_P(ParameterStateTest, APartOfWhatIsSavedHasItsBytes) {
  Arenas arenas(home_);
  StageModel& model = arenas.model();
  ParameterState state(model, config_);
  for (std::uint64_t step = 0; step < 2; ++step) apply(state, step);
  const auto whole = state.save();
  ASSERT_TRUE(whole) << whole.error().what;
  const std::uint64_t parameters = state.parameter_bytes();
  for (const auto& [first, bytes] : std::vector<std::pair<std::uint64_t, std::uint64_t>>{
           {0, 0},
           {0, 4},
           {parameters - 4, 8},
           {parameters, whole->size() - parameters},
           {4, whole->size() - 8},
           {whole->size(), 0}}) {
    const auto part = state.save(first, bytes);
    ASSERT_TRUE(part) << part.error().what;
    EXPECT_TRUE(same_bytes(part->bytes(), whole->bytes().subspan(first, bytes)))
        << first << " " << bytes;
  }
}

// Without the version before, too, which then comes with the next commit; and nothing of another
// size.
TEST_P(ParameterStateTest, TakesTheCommittedStateAloneAndNothingElse) {
  Arenas arenas(home_), other_arenas(home_);
  StageModel &model = arenas.model(), &other_model = other_arenas.model();
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
  EXPECT_TRUE(same_bytes(one->bytes(), another->bytes()));
  const auto cut = alone->bytes().first(alone->size() - 1);
  EXPECT_EQ(other.load(Version{1}, cut).error().code, ErrorCode::kIncompatible);
}

TEST_P(ParameterStateTest, TheFirstVersionIsTheOneBeforeItselfToo) {
  Arenas arenas(home_), other_arenas(home_);
  StageModel &model = arenas.model(), &other_model = other_arenas.model();
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

// In both homes the same bits: of the state, of what was inherited, and after commits that follow.
TEST_P(ParameterStateTest, ItsHomeDoesNotShow) {
  Arenas arenas(home_), host_arenas(Home::kHost), heirs_arenas(home_);
  ParameterState state(arenas.model(), config_), host(host_arenas.model(), config_);
  for (std::uint64_t step = 0; step < 3; ++step) {
    apply(state, step);
    apply(host, step);
    EXPECT_EQ(*state.digest(), *host.digest()) << step;
  }
  EXPECT_TRUE(same_bytes(state.save()->bytes(), host.save()->bytes()));
  ParameterState heir(heirs_arenas.model(), config_);
  ASSERT_TRUE(heir.adopt(state));
  EXPECT_EQ(*heir.digest(), *host.digest());
  apply(heir, 3);
  apply(host, 3);
  EXPECT_EQ(*heir.digest(), *host.digest());
  EXPECT_TRUE(same_bytes(heir.save()->bytes(), host.save()->bytes()));
}

// A gradient that came with the state of another stage is stepped with, though nobody took it here.
TEST_P(ParameterStateTest, WhatWasInheritedIsSteppedWith) {
  Arenas arenas(home_), host_arenas(Home::kHost), shadows_arenas(Home::kHost);
  ParameterState heir(arenas.model(), config_), host(host_arenas.model(), config_);
  ParameterState shadow(shadows_arenas.model(), config_);
  const std::vector<float> gradient = testing::arena(mixed_layout(), 9, 1.0F);
  for (ParameterState* state : {&shadow, &host})
    copy_bytes(as_bytes(std::span(gradient)), state->reduced());
  ASSERT_TRUE(heir.adopt(shadow));
  const StepScalars scalars{
      .learning_rate = 0.01, .clip_scale = 0.5, .bias_correction1 = 0.3, .bias_correction2 = 0.2};
  ASSERT_TRUE(heir.apply(scalars, false));
  ASSERT_TRUE(host.apply(scalars, false));
  EXPECT_EQ(*heir.digest(), *host.digest());
}

// What comes to the host of a whole commit are numbers: none of them grows with the model.
TEST_P(ParameterStateTest, ACommitMovesTheAverageAlone) {
  if (home_ == Home::kHost) return;
  Arenas arenas(home_);
  ParameterState state(arenas.model(), config_);
  apply(state, 0);
  const DeviceBus before = arenas.bus();
  const std::uint64_t bytes = state.parameter_bytes();
  constexpr std::uint64_t kNumbers = 64;
  apply(state, 1);
  EXPECT_EQ(arenas.bus().to_device - before.to_device, bytes);
  ASSERT_TRUE(state.digest());
  EXPECT_LE(arenas.bus().to_host - before.to_host, kNumbers);
  if (config_.pipeline.delay == 1) {
    ASSERT_TRUE(state.use(Version{2}));
    EXPECT_EQ(arenas.bus().to_device - before.to_device, bytes);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, ParameterStateTest,
    ::testing::Combine(::testing::Values(MomentsKind::kF32, MomentsKind::k8Bit),
                       ::testing::Values(0U, 1U), ::testing::Values(Home::kHost, Home::kDevice)));

}  // namespace
}  // namespace swarmline
