#include "engine/checkpoint/checkpoint_folder.h"

#include <filesystem>
#include <fstream>
#include <utility>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/checkpoint/retention.h"
#include "tests/checkpoint/small_stages.h"
#include "tests/store/temp_folder.h"

namespace swarmline {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class CheckpointFolderTest : public testing::Test {
 protected:
  std::vector<std::uint64_t> steps() {
    std::vector<std::uint64_t> steps;
    for (const CheckpointEntry& entry : *list_checkpoints(folder_.path())) {
      steps.push_back(entry.step);
    }
    return steps;
  }

  ParameterLayout layout_ = small_layout({{"w", {4}}});
  Buffer arena_ = counted_arena(layout_, 1);
  StageFileImage image_{{{.layout = layout_, .arena = arena_.bytes()}}};
  TempFolder folder_;
};

TEST_F(CheckpointFolderTest, ListsFinishedOnesByNumber) {
  for (const std::uint64_t step : {10, 9, 100}) write_checkpoint(folder_.path(), step, {image_});
  folder_.write("step-200.partial/manifest.json", "{}");
  folder_.write("step-x/manifest.json", "{}");
  folder_.write("step-300/stage-0.safetensors", "no manifest");
  folder_.write("notes", "");
  EXPECT_THAT(steps(), ElementsAre(9, 10, 100));
  EXPECT_EQ((*latest_checkpoint(folder_.path()))->path, folder_.at("step-100"));
}

TEST_F(CheckpointFolderTest, NoFolderHasNone) {
  EXPECT_TRUE(list_checkpoints(folder_.at("none"))->empty());
  EXPECT_EQ(*latest_checkpoint(folder_.at("none")), std::nullopt);
}

TEST_F(CheckpointFolderTest, LatestPassesOverDamage) {
  for (const std::uint64_t step : {1, 2, 3, 4}) write_checkpoint(folder_.path(), step, {image_});
  std::filesystem::resize_file(folder_.at("step-4/stage-0.safetensors"), 10);
  std::filesystem::remove(folder_.at("step-3/stage-0.safetensors"));
  folder_.write("step-2/manifest.json", "{");
  EXPECT_EQ((*latest_checkpoint(folder_.path()))->step, 1U);
  EXPECT_EQ(read_checkpoint(folder_.at("step-4"), Verify::kSizes).error().code,
            ErrorCode::kCorrupt);
  EXPECT_EQ(read_checkpoint(folder_.at("step-3"), Verify::kSizes).error().code,
            ErrorCode::kNotFound);
}

TEST_F(CheckpointFolderTest, ContentsAreVerifiedOnRequest) {
  const std::string path = write_checkpoint(folder_.path(), 1, {image_});
  std::string bytes = slurp(path + "/stage-0.safetensors");
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  folder_.write("step-1/stage-0.safetensors", bytes);
  EXPECT_TRUE(read_checkpoint(path, Verify::kSizes));
  const auto verified = read_checkpoint(path, Verify::kContents);
  ASSERT_FALSE(verified);
  EXPECT_EQ(verified.error().code, ErrorCode::kCorrupt);
  EXPECT_THAT(verified.error().what, HasSubstr("stage-0.safetensors is damaged"));
}

TEST_F(CheckpointFolderTest, KeepsTheNewest) {
  for (const std::uint64_t step : {5, 20, 100}) write_checkpoint(folder_.path(), step, {image_});
  ASSERT_TRUE(prune_checkpoints(folder_.path(), {.newest = 3}));
  EXPECT_THAT(steps(), ElementsAre(5, 20, 100));
  ASSERT_TRUE(prune_checkpoints(folder_.path(), {.newest = 2}));
  EXPECT_THAT(steps(), ElementsAre(20, 100));
  ASSERT_TRUE(prune_checkpoints(folder_.path(), {.newest = 1}));
  EXPECT_THAT(steps(), ElementsAre(100));
}

TEST_F(CheckpointFolderTest, RoundStepsAndTheBestStayBesideTheNewest) {
  for (const std::uint64_t step : {10, 15, 20, 25, 30, 35, 40})
    write_checkpoint(folder_.path(), step, {image_});
  const Retention retention{.newest = 1,
                            .every_steps = 20,
                            .best = 2,
                            .held_out = {{10, 2.5}, {15, 1.5}, {25, 1.0}, {30, 1.5}, {99, 0.1}}};
  const auto looked = prune_checkpoints(folder_.path(), retention, {.only_look = true});
  ASSERT_TRUE(looked);
  EXPECT_THAT(looked->removed,
              ElementsAre(folder_.at("step-35"), folder_.at("step-15"), folder_.at("step-10")));
  EXPECT_EQ(steps().size(), 7U) << "it only looked";
  const auto pruned = prune_checkpoints(folder_.path(), retention);
  ASSERT_TRUE(pruned);
  EXPECT_EQ(pruned->removed, looked->removed);
  EXPECT_THAT(steps(), ElementsAre(20, 25, 30, 40)) << "of two losses alike the newer one";
}

TEST_F(CheckpointFolderTest, TheNewestWholeOneIsNeverRemoved) {
  for (const std::uint64_t step : {10, 20, 30}) write_checkpoint(folder_.path(), step, {image_});
  std::filesystem::resize_file(folder_.at("step-30/stage-0.safetensors"), 10);
  const auto pruned = prune_checkpoints(
      folder_.path(), {.newest = 1, .every_steps = 7, .best = 1, .held_out = {{30, 0.1}}});
  ASSERT_TRUE(pruned);
  EXPECT_THAT(pruned->set_aside, ElementsAre(folder_.at("step-30")));
  EXPECT_THAT(steps(), ElementsAre(20));
}

TEST_F(CheckpointFolderTest, WhatStaysIsReadBeforeAnythingGoes) {
  for (const std::uint64_t step : {10, 20, 30, 40})
    write_checkpoint(folder_.path(), step, {image_});
  for (const std::uint64_t step : {20, 40}) {  // one bit of the last tensor
    const std::string file = folder_.at(fmt::format("step-{}/stage-0.safetensors", step));
    std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekg(-1, std::ios::end);
    const int last = bytes.get();
    bytes.seekp(-1, std::ios::end);
    bytes.put(static_cast<char>(last ^ 1));
  }
  const auto pruned =
      prune_checkpoints(folder_.path(), {.newest = 1}, {.verify = Verify::kContents});
  ASSERT_TRUE(pruned) << pruned.error().what;
  EXPECT_THAT(pruned->set_aside, ElementsAre(folder_.at("step-40")));
  EXPECT_THAT(pruned->removed, ElementsAre(folder_.at("step-20"), folder_.at("step-10")));
  EXPECT_THAT(steps(), ElementsAre(30));
}

// [The newest is damaged, and the run begins again before it: what is written then stays.]
TEST_F(CheckpointFolderTest, DamagedOnesDoNotCountAsKept) {
  for (const std::uint64_t step : {10, 90, 100}) write_checkpoint(folder_.path(), step, {image_});
  for (const std::uint64_t step : {90, 100})
    std::filesystem::resize_file(folder_.at(fmt::format("step-{}/stage-0.safetensors", step)), 10);
  ASSERT_TRUE(prune_checkpoints(folder_.path(), {.newest = 1}));
  EXPECT_THAT(steps(), ElementsAre(10));
  EXPECT_THAT(*list_folder(folder_.path()), ElementsAre("step-10", "step-100.damaged"));
  ASSERT_TRUE(set_aside_damaged(folder_.at("step-10")));
  EXPECT_TRUE(steps().empty());
  EXPECT_EQ(*latest_checkpoint(folder_.path()), std::nullopt);
}

// [A run that went back writes lower steps than it had before: they are the newer ones.]
TEST_F(CheckpointFolderTest, AHigherEraIsNewer) {
  for (const auto& [step, era] : {std::pair(100U, 0U), {10U, 1U}, {20U, 1U}}) {
    auto writer = CheckpointWriter::begin(folder_.path(), step, 1);
    ASSERT_TRUE(writer);
    send_stage(*writer, 0, image_, 100);
    Manifest manifest = small_manifest({1});
    manifest.era = era;
    ASSERT_TRUE(writer->commit(std::move(manifest)));
  }
  EXPECT_THAT(steps(), ElementsAre(100, 10, 20));
  EXPECT_EQ((*latest_checkpoint(folder_.path()))->path, folder_.at("step-20"));
  ASSERT_TRUE(prune_checkpoints(folder_.path(), {.newest = 2}));
  EXPECT_THAT(steps(), ElementsAre(10, 20));
}

}  // namespace
}  // namespace swarmline
