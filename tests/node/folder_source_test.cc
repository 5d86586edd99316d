// A run folder's checkpoints are read on another thread than the one that asks.
#include "node/folder_source.h"

#include <filesystem>
#include <optional>
#include <thread>

#include <gtest/gtest.h>

#include "engine/checkpoint/sha256.h"
#include "engine/device/cpu_device.h"
#include "engine/runtime/asio_runtime.h"
#include "tests/checkpoint/small_stages.h"
#include "tests/store/temp_folder.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

class FolderSourceTest : public testing::Test {
 protected:
  // What open_newest() says, once the runtime has run; it must not say so inside the call.
  Result<std::optional<CheckpointSource::Saved>> opened(FolderSource& source) {
    std::optional<Result<std::optional<CheckpointSource::Saved>>> said;
    std::thread::id where;
    source.open_newest([&](auto saved) {
      where = std::this_thread::get_id();
      said = std::move(saved);
    });
    EXPECT_FALSE(said);
    EXPECT_TRUE(runtime_.run_until([&] { return said.has_value(); }, 60s));
    EXPECT_EQ(where, std::this_thread::get_id());
    return std::move(*said);
  }

  const TempFolder folder_;
  const std::string root_ = folder_.path();
  AsioRuntime runtime_;
  CpuDevice device_{runtime_, {}};
};

TEST_F(FolderSourceTest, AFolderWithoutCheckpointsHasNone) {
  FolderSource source(root_, device_);
  const auto saved = opened(source);
  ASSERT_TRUE(saved.has_value());
  EXPECT_FALSE(saved->has_value());
  EXPECT_FALSE(source.tensor("x").has_value());
}

TEST_F(FolderSourceTest, TheNewestWholeOneIsOpened) {
  const ParameterLayout layout = small_layout({{.name = "weight", .shape = {3}}});
  const Buffer arena = counted_arena(layout, 1);
  const StageFileImage image({{.layout = layout, .arena = arena.bytes()}});
  for (const std::uint64_t step : {1U, 2U, 3U}) {
    auto writer = CheckpointWriter::begin(root_, step, 1);
    ASSERT_TRUE(writer.has_value());
    send_stage(*writer, 0, image, 100);
    Manifest manifest = small_manifest({1});
    manifest.version = step;
    manifest.updates = step;
    manifest.optimizer_state = step < 3;  // nothing to go on from, otherwise
    ASSERT_TRUE(writer->commit(std::move(manifest)).has_value());
  }
  FolderSource source(root_, device_);
  for (const std::uint64_t newest : {2U, 1U}) {
    const auto saved = opened(source);
    ASSERT_TRUE(saved.has_value() && saved->has_value());
    EXPECT_EQ((*saved)->version, newest);
    EXPECT_EQ((*saved)->updates, newest);
    EXPECT_TRUE(source.tensor("weight").has_value());
    const std::string damaged = (*saved)->path + "/" + part_file_name(0, 0, 1);
    std::filesystem::resize_file(damaged, std::filesystem::file_size(damaged) - 1);
  }
  const auto none = opened(source);
  ASSERT_TRUE(none.has_value());
  EXPECT_FALSE(none->has_value());
  EXPECT_FALSE(source.tensor("weight").has_value());
}

// Its bytes are what was written, and that was no checkpoint.
TEST_F(FolderSourceTest, WhatCantBeReadIsAnError) {
  auto writer = CheckpointWriter::begin(root_, 1, 1);
  ASSERT_TRUE(writer.has_value());
  const std::string text(8, ' ');
  ASSERT_TRUE(writer->write_piece(0, 0, as_bytes(text)).has_value());
  ASSERT_TRUE(writer->finish_stage(0, text.size(), sha256_hex(as_bytes(text))).has_value());
  Manifest manifest = small_manifest({1});
  manifest.optimizer_state = true;
  ASSERT_TRUE(writer->commit(std::move(manifest)).has_value());
  FolderSource source(root_, device_);
  EXPECT_FALSE(opened(source).has_value());
}

}  // namespace
}  // namespace swarmline
