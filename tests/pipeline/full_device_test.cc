// A device with room for few graphs: what does not fit is sent elsewhere or waits, and the run is
// the one with room for all.
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <set>

#include <gtest/gtest.h>

#include "base/marks.h"
#include "engine/model/working_memory.h"
#include "sim/cluster/fake_stage_model.h"
#include "sim/cluster/model_wrapper.h"
#include "sim/cluster/resident_model.h"
#include "tests/harness/mark_expected.h"
#include "tests/pipeline/swarm_harness.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

struct Room {
  std::size_t forward,
      backward;  // graphs that may be there with one more, and while one is used up
};

class FullModel final : public ModelWrapper {
 public:
  FullModel(std::unique_ptr<StageModel> inner, Room room, std::uint64_t& refused)
      : ModelWrapper(std::move(inner)), room_(room), refused_(refused) {}

  Result<ForwardOutput> forward(const ForwardInput& input) override {
    if (input.train && graphs() >= room_.forward) return full("forward");
    return ModelWrapper::forward(input);
  }
  Result<BackwardOutput> backward(const BackwardInput& input) override {
    const bool again = given_up_.contains(input.id);
    if (graphs() + (again ? 1 : 0) > room_.backward) {
      given_up_.insert(input.id);
      return full("backward");
    }
    given_up_.erase(input.id);
    return ModelWrapper::backward(input);
  }
  void release(AttemptId id) override {
    given_up_.erase(id);
    ModelWrapper::release(id);
  }

 private:
  std::size_t graphs() const { return saved_graphs() - given_up_.size(); }
  std::unexpected<Error> full(const char* what) {
    ++refused_;
    return fail(ErrorCode::kOutOfMemory, what);
  }

  const Room room_;
  std::uint64_t& refused_;
  std::set<AttemptId> given_up_;
};

// Has room for one graph in the first ten steps, and for all later.
class EmptiedModel final : public ModelWrapper {
 public:
  EmptiedModel(std::unique_ptr<StageModel> inner, std::size_t& most_late)
      : ModelWrapper(std::move(inner)), most_late_(most_late) {}
  Result<ForwardOutput> forward(const ForwardInput& input) override {
    const std::uint64_t step = input.id.microbatch.phase.step;
    if (input.train && step < 10 && saved_graphs() >= 1)
      return fail(ErrorCode::kOutOfMemory, "forward");
    auto output = ModelWrapper::forward(input);
    if (step > 30) most_late_ = std::max(most_late_, saved_graphs());
    return output;
  }

 private:
  std::size_t& most_late_;
};

MakeModel with_room(Room room, std::uint64_t& refused, std::uint16_t stage) {
  return [room, &refused, stage](const ModelSpec& spec, const StageSpec& of,
                                 const StageModelOptions&) -> Result<std::unique_ptr<StageModel>> {
    auto model = std::make_unique<FakeStageModel>(spec, of);
    if (of.stage.value != stage) return model;
    return std::make_unique<FullModel>(std::move(model), room, refused);
  };
}

std::uint64_t failures() {
  const Mark* const mark = Mark::find("microbatches.compute_failed");
  return mark == nullptr ? 0 : mark->hits();
}

class FullDevice : public testing::TestWithParam<std::uint32_t> {};

TEST_P(FullDevice, TheRunIsTheOneWithRoomForAll) {
  const MarkExpected full("admission.device_full");
  for (const std::vector<std::uint32_t>& peers : {std::vector{1U, 1U, 1U}, {2U, 2U, 2U}})
    for (std::uint16_t stage = 0; stage < 3; ++stage)
      for (const Room room : {Room{1, 1}, Room{3, 3}, Room{3, 2}, Room{4, 1}}) {
        RunConfig config = small_run(peers);
        config.pipeline.delay = GetParam();
        std::uint64_t refused = 0;
        const std::uint64_t failed = failures();
        Swarm swarm(swarm_of(config, with_room(room, refused, stage)));
        swarm.finish();
        expect_equal(swarm.cluster().parameters(), one_each(config));
        EXPECT_EQ(failures(), failed);
        if (room.forward == 1 && peers[0] == 1) EXPECT_GT(refused, 0U) << stage;
        if (testing::Test::HasFailure())
          FAIL() << peers[0] << " peers, stage " << stage << ", room for " << room.forward
                 << " and " << room.backward;
      }
}

// What waits for room waits for these gradients; others send the microbatches elsewhere meanwhile.
TEST_P(FullDevice, LateGradientsChangeNothing) {
  const MarkExpected full("admission.device_full");
  RunConfig config = small_run({1, 2, 2});
  config.pipeline.delay = GetParam();
  config.wiring.hop_timeout_seconds = 0.2;
  std::uint64_t refused = 0;
  Swarm swarm(swarm_of(config, with_room({4, 1}, refused, 1)));
  swarm.until_started();
  std::uint64_t came = 0;  // gradients at the full one
  swarm.rule(
      [&, late = swarm.node(1, 0)](SimNodeId, SimNodeId to, const Frame& frame) -> FrameFate {
        if (to != late || kind_of(frame) != MessageKind::kGradient || came++ == 0 || came > 4)
          return {};
        return {.kind = FrameFate::Kind::kDelay, .delay = 3s};
      });
  swarm.finish();
  expect_equal(swarm.cluster().parameters(), one_each(config));
}

// Somebody else's program leaves the card: the peer takes as many microbatches as before it came.
TEST_P(FullDevice, RoomThatComesBackIsUsed) {
  const MarkExpected full("admission.device_full"), more("admission.tries_more_room");
  RunConfig config = small_run({1, 2, 1});
  config.pipeline.delay = GetParam();
  config.run.steps = 40;
  std::size_t most_late = 0;  // graphs at once, in the last steps
  const MakeModel make = [&](const ModelSpec& spec, const StageSpec& of,
                             const StageModelOptions&) -> Result<std::unique_ptr<StageModel>> {
    auto model = std::make_unique<FakeStageModel>(spec, of);
    if (of.stage.value != 1) return model;
    return std::make_unique<EmptiedModel>(std::move(model), most_late);
  };
  Swarm swarm(swarm_of(config, make));
  swarm.finish();
  EXPECT_GT(most_late, 1U);
}

// What does not fit alone fits nowhere.
TEST_P(FullDevice, AMicrobatchThatNeverFitsEndsTheRunByName) {
  RunConfig config = small_run({1, 2, 1});
  config.pipeline.delay = GetParam();
  std::uint64_t refused = 0;
  Swarm swarm(swarm_of(config, with_room({0, 0}, refused, 1)));
  const RunOutcome outcome = swarm.end(std::chrono::seconds(60));
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_NE(outcome.sentence.find("failed on 2 peers"), std::string::npos) << outcome.sentence;
  EXPECT_LT(refused, 100U);
}

// ---- A card of so many bytes --------------------------------------------------------------------

// Its graphs are in the memory of the device that it is on, as a CUDA stage's are.
class GraphsOnACard final : public ModelWrapper {
 public:
  GraphsOnACard(std::unique_ptr<StageModel> inner, std::uint64_t graph_bytes,
                const std::shared_ptr<DeviceBus>& bus)
      : ModelWrapper(std::move(inner)), graph_bytes_(graph_bytes), graphs_(bus) {}

  Result<ForwardOutput> forward(const ForwardInput& input) override {
    if (input.train) {
      SWARMLINE_TRY(graphs_.take(graph_bytes_));
      ++counted_;
    }
    return counted(ModelWrapper::forward(input));
  }
  Result<BackwardOutput> backward(const BackwardInput& input) override {
    return counted(ModelWrapper::backward(input));
  }
  Result<void> add_weight_gradients(AttemptId id, MutableBytes accumulator) override {
    return counted(ModelWrapper::add_weight_gradients(id, accumulator));
  }
  void release(AttemptId id) override {
    ModelWrapper::release(id);
    counted(true);
  }

 private:
  template <typename T>
  T counted(T result) {
    for (; counted_ > saved_graphs(); --counted_) graphs_.give_back(graph_bytes_);
    return result;
  }

  const std::uint64_t graph_bytes_;
  TakenMemory graphs_;
  std::size_t counted_ = 0;
};

// A stage of three peers, each on a card with room for so many graphs beside what its seat took.
class ACard : public FullDevice {
 protected:
  static constexpr std::uint64_t kGraphs = 3;

  ACard() : config_(small_run({1, 3, 1})) {
    config_.pipeline.delay = GetParam();
    config_.pipeline.in_flight = 12;
    config_.pipeline.recompute = Recompute::kNever;
  }
  struct Card {
    std::shared_ptr<DeviceBus> bus = std::make_shared<DeviceBus>();
    std::uint64_t at_its_seat = 0, graph = 0;  // bytes
  };
  // `refuses`: that card has no room for the stage.
  SimClusterOptions on_cards(const std::function<bool()>& refuses = {}) {
    SimClusterOptions options = swarm_of(config_, make_fake_model);
    options.outfit = [this, refuses](std::size_t peer, Runtime&, StagePeerOptions& outfit) {
      const auto card = std::make_shared<Card>();
      outfit.free_device_memory = [card](const std::string&) {
        if (card->bus->taken > 0 && card->at_its_seat == 0) {
          card->at_its_seat = card->bus->taken;
          card->bus->memory = card->at_its_seat + kGraphs * card->graph;
        }
        return card->bus->left();
      };
      outfit.make_model = [this, card, peer, refuses](
                              const ModelSpec& spec, const StageSpec& of,
                              const StageModelOptions&) -> Result<std::unique_ptr<StageModel>> {
        auto model = std::make_unique<FakeStageModel>(spec, of);
        if (of.stage.value != 1) return model;
        card->graph = retained_bytes_on_cuda(spec, of, config_.batch.microbatch, false);
        if (refuses && refuses()) card->bus->memory = make_layout(spec, of).bytes();
        cards_[peer] = card;
        return on_a_device(
            std::make_unique<GraphsOnACard>(std::move(model), card->graph, card->bus), std::nullopt,
            card->bus);
      };
    };
    return options;
  }

  RunConfig config_;
  std::map<std::size_t, std::shared_ptr<Card>> cards_;  // by peer
};

// Error feedback's residuals are first written by the first average, when graphs are there.
TEST_P(ACard, AnAverageFindsItsRoomBesideAllGraphs) {
  config_.codec.averaging = "lin8";
  config_.codec.error_feedback = true;
  const std::uint64_t failed = failures();
  Swarm swarm(on_cards());
  swarm.finish();
  EXPECT_EQ(events(swarm, "peer_lost") + events(swarm, "peer_failed"), 0U) << history(swarm);
  EXPECT_EQ(failures(), failed);
  EXPECT_EQ(cards_.size(), 3U);
  for (const auto& [peer, card] : cards_)
    EXPECT_GE(card->bus->most_taken, card->at_its_seat + 2 * card->graph) << peer;
}

// Who can't hold the stage leaves and says why, and the run takes the next one.
TEST_P(ACard, AStageTooLargeForOnePeerIsTrainedByTheOthers) {
  Swarm swarm(on_cards([this] { return cards_.empty(); }));
  const auto refused = [&] { return events(swarm, "peer_failed", "has no room for stage 1"); };
  ASSERT_TRUE(swarm.until([&] { return refused() == 1; })) << history(swarm);
  swarm.cluster().add_peer({});
  swarm.finish();
  EXPECT_EQ(refused(), 1U) << history(swarm);
}

// As many as are wanted and `spares` more come while all still build, and the first `refused` that
// build the stage have no room.
class ACardWithSpares : public ACard {
 protected:
  void expect_that_spares_fill(std::size_t spares, std::size_t refused) {
    const MarkExpected filled("gathering.stage_filled");
    SimClusterOptions options = on_cards([&] { return cards_.size() < refused; });
    options.peers.assign(5, {.control = 1s});
    Swarm swarm(std::move(options));
    for (std::size_t i = 0; i < spares; ++i) swarm.cluster().add_peer({.control = 1s});
    ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_joined") == 5 + spares; }));
    ASSERT_EQ(events(swarm, "peer_failed"), 0U) << "all came before anybody was refused";
    swarm.finish();
    EXPECT_EQ(events(swarm, "peer_failed", "has no room for stage 1"), refused) << history(swarm);
    EXPECT_EQ(cards_.size(), refused + 3) << "nobody has refused it twice";
  }
};

TEST_P(ACardWithSpares, OneTakesThePlaceOfWhoHasNoRoom) {
  expect_that_spares_fill(1, 1);
}

TEST_P(ACardWithSpares, EachIsAskedOnce) {
  expect_that_spares_fill(3, 3);
}

INSTANTIATE_TEST_SUITE_P(ADelay, ACardWithSpares, testing::Values(0U, 1U));
INSTANTIATE_TEST_SUITE_P(ADelay, ACard, testing::Values(0U, 1U));
INSTANTIATE_TEST_SUITE_P(Delay, FullDevice, testing::Values(0U, 1U));

}  // namespace
}  // namespace swarmline
