// What a stage holds of its device's memory is taken with its seat, and microbatches have what that
// leaves.
#include "pipeline/stage/common/seat_memory.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/units.h"
#include "engine/config/load.h"
#include "pipeline/stage/common/arena_model.h"
#include "pipeline/stage/life/stage_builder.h"
#include "sim/cluster/resident_model.h"
#include "tests/harness/mark_expected.h"
#include "tests/pipeline/swarm_config.h"

namespace swarmline {
namespace {

constexpr std::uint32_t kVocab = 31;

// A seat at the second of two stages, on a card of so many bytes.
class SeatMemoryTest : public testing::Test {
 protected:
  SeatMemoryTest() {
    config_ = small_run(2, 2);
    config_.model.dtype = DType::kF32;
    options_.machine.device = "cuda:1";
    options_.make_source = [](const RunConfig&) { return std::unique_ptr<MicrobatchSource>(); };
    options_.make_model = [this](const ModelSpec& spec, const StageSpec& stage,
                                 const StageModelOptions&) -> Result<std::unique_ptr<StageModel>> {
      return on_a_device(std::make_unique<ArenaModel>(make_layout(spec, stage)), std::nullopt,
                         bus_);
    };
    options_.free_device_memory = [this](const std::string&) { return bus_->left(); };
    card(80 * kGiB);
  }

  void card(std::uint64_t bytes) {
    bus_ = std::make_shared<DeviceBus>();
    bus_->memory = bytes;
  }
  Result<SeatedStageParts> build() const {
    const SeatOffer offer{
        .seat = {PeerId{1}, StageId{1}, Incarnation{1}},
        .config = to_toml(config_),
        .vocab = kVocab,
        .cuts = {{.first_layer = 0, .last_layer = 2}, {.first_layer = 2, .last_layer = 4}}};
    auto parts = parts_of(offer, options_.machine);
    if (!parts) return parts;
    SWARMLINE_TRY(build_stage(options_, *parts));
    return parts;
  }
  static StageSpec stage() {
    return {.stage = StageId{1}, .stages = 2, .first_layer = 2, .last_layer = 4};
  }
  SeatMemory expected() const {
    return seat_memory(config_, *resolve_model(config_, kVocab, 0), stage());
  }
  std::uint64_t arena() const {
    return make_layout(*resolve_model(config_, kVocab, 0), stage()).bytes();
  }
  // After all that a step and its average do with the device's memory.
  void expect_no_more(SeatedStageParts& parts) const {
    const std::uint64_t taken = bus_->taken;
    parts.state->begin(0);
    parts.state->begin(1);
    if (config_.pipeline.delay == 1) parts.model->exchange_parameters();
    if (DeviceOptimizer* device = parts.state->device(); device != nullptr) {
      EXPECT_TRUE(device->arena(DeviceArena::kReduced));
      if (config_.pipeline.delay == 1) EXPECT_TRUE(device->arena(DeviceArena::kCommitted));
      if (expected().residuals > 0) {
        EXPECT_TRUE(device->arena(DeviceArena::kResidual));
        EXPECT_TRUE(device->arena(DeviceArena::kNextResidual));
      }
    }
    EXPECT_EQ(bus_->taken, taken);
  }

  RunConfig config_;
  StagePeerOptions options_;
  std::shared_ptr<DeviceBus> bus_;
};

TEST_F(SeatMemoryTest, AllThatIsKnownIsTakenWithTheSeat) {
  for (const std::uint32_t delay : {0U, 1U})
    for (const char* codec : {"none", "lin8", "topk"})
      for (const MomentsKind kind : {MomentsKind::kF32, MomentsKind::k8Bit})
        for (const StateMemory home : {StateMemory::kDevice, StateMemory::kHost})
          for (const Islands islands : {Islands::kNone, Islands::kHost}) {
            config_.pipeline.delay = delay;
            config_.codec.averaging = codec;
            config_.optimizer.state = kind;
            config_.optimizer.state_memory = home;
            config_.net.islands = islands;
            card(80 * kGiB);
            {
              auto parts = build();
              ASSERT_TRUE(parts) << parts.error().what;
              EXPECT_EQ(bus_->taken, expected().taken())
                  << delay << " " << codec << " " << static_cast<int>(home);
              expect_no_more(*parts);
            }
            EXPECT_EQ(bus_->taken, 0U);
          }
}

TEST_F(SeatMemoryTest, ArenasAreCounted) {
  config_.codec.averaging = "topk";
  EXPECT_EQ(expected().residuals, 2 * arena());
  EXPECT_EQ(expected().island, 0U);
  config_.net.islands = Islands::kHost;
  EXPECT_EQ(expected().residuals, 0U) << "members of islands keep them on the host";
  config_.codec.averaging = "none";
  EXPECT_EQ(expected().island, arena());
  config_.net.fabric = FabricChoice::kNone;
  EXPECT_EQ(expected().island, 0U);
}

TEST_F(SeatMemoryTest, AStageThatDoesNotFitIsRefusedInASentence) {
  config_.codec.averaging = "topk";
  const std::uint64_t needed = expected().taken();
  card(needed);
  EXPECT_TRUE(build());
  // Each of these lacks room at another place.
  for (const std::uint64_t size : {needed - 1, needed - 2 * arena(), needed / 2, arena()}) {
    card(size);
    const auto refused = build();
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kOutOfMemory);
    const auto mib = [](std::uint64_t bytes) {
      return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / static_cast<double>(kMiB));
    };
    EXPECT_EQ(
        refused.error().what,
        "cuda:1 has no room for stage 1 (layers 2 to 3), which takes " + mib(needed) +
            " of its memory beside microbatches, and " + mib(size) +
            " are free: use more stages (pipeline.stages); use optimizer.state = \"8bit\" or "
            "optimizer.state_memory = \"host\"; use a codec.averaging without error feedback");
    EXPECT_EQ(bus_->taken, 0U) << "it is given back";
  }
}

TEST_F(SeatMemoryTest, WhatIsNotThereIsNotAdvised) {
  config_.optimizer.state = MomentsKind::k8Bit;
  card(arena());
  const auto packed = build();
  ASSERT_FALSE(packed);
  EXPECT_TRUE(packed.error().what.ends_with(
      "are free: use more stages (pipeline.stages); use optimizer.state_memory = \"host\""))
      << packed.error().what;
  config_.optimizer.state_memory = StateMemory::kHost;
  card(arena());
  const auto refused = build();
  ASSERT_FALSE(refused);
  EXPECT_TRUE(refused.error().what.ends_with("are free: use more stages (pipeline.stages)"))
      << refused.error().what;
}

TEST_F(SeatMemoryTest, MicrobatchesHaveAPartOfWhatIsLeft) {
  config_.codec.averaging = "topk";
  card(expected().taken() + 80 * kGiB);
  EXPECT_EQ(build()->admit_bytes, 20 * kGiB);
  card(expected().taken() + 2 * kGiB);
  EXPECT_EQ(build()->admit_bytes, kGiB);
  card(expected().taken() + 1000);
  EXPECT_EQ(build()->admit_bytes, 1000U) << "no more than there is";
}

// The user has said what it may use, or nobody knows: it is made if it can be.
TEST_F(SeatMemoryTest, WhatIsNotMeasuredIsNotSaid) {
  options_.free_device_memory = {};
  card(expected().taken());
  EXPECT_EQ(build()->admit_bytes, kGiB);
  card(arena());
  const auto refused = build();
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().what.find("beside microbatches: use more stages"), std::string::npos)
      << refused.error().what;
}

// Nobody knows before a seal whether it is wanted.
TEST_F(SeatMemoryTest, RoomForAnIslandsSumIsLeftAlone) {
  config_.net.islands = Islands::kHost;
  card(expected().taken() + expected().island + 1000);
  EXPECT_EQ(build()->admit_bytes, expected().island + 1000) << "no GPU that anybody sums with";
  options_.gpu.uuid = "GPU-1";
  EXPECT_EQ(build()->admit_bytes, 1000U);
  config_.net.fabric = FabricChoice::kNone;
  EXPECT_EQ(build()->admit_bytes, arena() + 1000);
}

TEST_F(SeatMemoryTest, WithoutRoomForAnIslandsSumItHasItsSeat) {
  const MarkExpected said("stage.no_room_for_islands");
  config_.net.islands = Islands::kHost;
  options_.gpu.uuid = "GPU-1";
  card(expected().taken() + expected().island / 2);
  const auto parts = build();
  ASSERT_TRUE(parts);
  EXPECT_EQ(parts->admit_bytes, expected().island / 2) << "left free, it would be of no use";
}

}  // namespace
}  // namespace swarmline
