#include "engine/checkpoint/checkpoint_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/checkpoint/checkpoint_folder.h"
#include "tests/checkpoint/small_stages.h"
#include "tests/store/temp_folder.h"

namespace swarmline {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class CheckpointWriterTest : public testing::Test {
 protected:
  CheckpointWriter begin(std::uint32_t stages) {
    auto writer = CheckpointWriter::begin(checkpoints_, 7, stages);
    EXPECT_TRUE(writer) << writer.error().what;
    return std::move(*writer);
  }
  std::vector<std::string> files() { return *list_folder(checkpoints_); }

  ParameterLayout layout_ = small_layout({{"w", {40, 10}}, {"b", {13}}});
  Buffer arena_ = counted_arena(layout_, 1);
  StageFileImage image_{{{.layout = layout_, .arena = arena_.bytes()}}};
  TempFolder folder_;
  std::string checkpoints_ = folder_.at("run/checkpoints");
};

TEST_F(CheckpointWriterTest, AppearsWholeOrNotAtAll) {
  auto writer = begin(2);
  EXPECT_THAT(files(), ElementsAre("step-7.0.partial"));
  send_stage(writer, 1, image_, 64);
  EXPECT_TRUE(writer.stage_finished(1));
  EXPECT_FALSE(writer.complete());
  const auto early = writer.commit(small_manifest({1, 1}));
  ASSERT_FALSE(early);
  EXPECT_EQ(early.error().code, ErrorCode::kRefused);
  send_stage(writer, 0, image_, 1000);
  EXPECT_TRUE(writer.complete());
  EXPECT_THAT(files(), ElementsAre("step-7.0.partial"));
  const auto path = writer.commit(small_manifest({1, 1}));
  ASSERT_TRUE(path) << path.error().what;
  EXPECT_EQ(*path, checkpoints_ + "/step-7");
  EXPECT_THAT(files(), ElementsAre("step-7"));
  EXPECT_THAT(*list_folder(*path),
              ElementsAre("manifest.json", "stage-0.safetensors", "stage-1.safetensors"));

  const auto manifest = read_checkpoint(*path, Verify::kContents);
  ASSERT_TRUE(manifest) << manifest.error().what;
  EXPECT_EQ(manifest->stages[0].parts[0].sha256, image_.sha256());
  EXPECT_EQ(manifest->stages[1].parts[0].bytes, image_.size_bytes());
}

TEST_F(CheckpointWriterTest, DroppedLeavesNothing) {
  {
    auto writer = begin(2);
    send_stage(writer, 0, image_, 64);
    ASSERT_TRUE(writer.write_piece(1, 0, as_bytes("half")));
  }
  EXPECT_THAT(files(), ElementsAre());
}

TEST_F(CheckpointWriterTest, LeftOversOfAKilledWriterAreRemoved) {
  folder_.write("run/checkpoints/step-7.3.partial/stage-5.safetensors", "old");
  auto writer = begin(1);
  send_stage(writer, 0, image_, 64);
  const auto path = writer.commit(small_manifest({1}));
  ASSERT_TRUE(path) << path.error().what;
  EXPECT_THAT(*list_folder(*path), ElementsAre("manifest.json", "stage-0.safetensors"));
}

TEST_F(CheckpointWriterTest, PiecesInAnyOrderAndTwice) {
  auto writer = begin(1);
  const std::uint64_t half = image_.size_bytes() / 2;
  ASSERT_TRUE(writer.write_piece(0, half, image_.piece(half, UINT64_MAX).bytes()));
  ASSERT_TRUE(writer.write_piece(0, 0, image_.piece(0, half + 10).bytes()));
  ASSERT_TRUE(writer.write_piece(0, 5, image_.piece(5, 50).bytes()));
  const auto finished = writer.finish_stage(0, image_.size_bytes(), image_.sha256());
  EXPECT_TRUE(finished) << finished.error().what;
}

TEST_F(CheckpointWriterTest, RewrittenPieceIsHashedAsItLies) {
  auto writer = begin(1);
  ASSERT_TRUE(writer.write_piece(0, 0, as_bytes("abcd")));
  ASSERT_TRUE(writer.write_piece(0, 0, as_bytes("xy")));
  ASSERT_FALSE(writer.finish_stage(0, 4, sha256_hex(as_bytes("abcd"))));
  ASSERT_TRUE(writer.write_piece(0, 0, as_bytes("abcd")));
  ASSERT_TRUE(writer.write_piece(0, 0, as_bytes("xy")));
  EXPECT_TRUE(writer.finish_stage(0, 4, sha256_hex(as_bytes("xycd"))));
}

TEST_F(CheckpointWriterTest, DamageOnTheWayIsFoundAndTheStageStartsOver) {
  auto writer = begin(1);
  Buffer damaged = image_.piece(0, UINT64_MAX);
  damaged.data()[damaged.size() - 3] ^= std::byte{1};
  ASSERT_TRUE(writer.write_piece(0, 0, damaged.bytes()));
  const auto finished = writer.finish_stage(0, image_.size_bytes(), image_.sha256());
  ASSERT_FALSE(finished);
  EXPECT_EQ(finished.error().code, ErrorCode::kCorrupt);
  EXPECT_THAT(finished.error().what, HasSubstr("stage 0 came damaged"));
  EXPECT_FALSE(writer.stage_finished(0));
  send_stage(writer, 0, image_, 64);
  EXPECT_TRUE(writer.commit(small_manifest({1})));
}

TEST_F(CheckpointWriterTest, MissingBytesAreFound) {
  auto writer = begin(2);
  ASSERT_TRUE(writer.write_piece(0, 0, image_.piece(0, 100).bytes()));
  const auto finished = writer.finish_stage(0, image_.size_bytes(), image_.sha256());
  ASSERT_FALSE(finished);
  EXPECT_EQ(finished.error().code, ErrorCode::kCorrupt);
  EXPECT_THAT(finished.error().what, HasSubstr("100 bytes of stage 0 came"));
  // A hole: the size is right, the middle never came.
  ASSERT_TRUE(writer.write_piece(1, 0, image_.piece(0, 100).bytes()));
  ASSERT_TRUE(writer.write_piece(1, 500, image_.piece(500, UINT64_MAX).bytes()));
  EXPECT_EQ(writer.finish_stage(1, image_.size_bytes(), image_.sha256()).error().code,
            ErrorCode::kCorrupt);
  // Nothing at all.
  EXPECT_EQ(writer.finish_stage(1, 10, image_.sha256()).error().code, ErrorCode::kCorrupt);
}

TEST_F(CheckpointWriterTest, RefusesWhatDoesNotFit) {
  auto writer = begin(1);
  EXPECT_EQ(writer.write_piece(1, 0, as_bytes("x")).error().code, ErrorCode::kRefused);
  EXPECT_EQ(writer.write_piece(0, kStageFileBytesMax, as_bytes("x")).error().code,
            ErrorCode::kRefused);
  EXPECT_EQ(writer.write_piece(0, UINT64_MAX, as_bytes("x")).error().code, ErrorCode::kRefused);
  send_stage(writer, 0, image_, 64);
  EXPECT_EQ(writer.write_piece(0, 0, as_bytes("x")).error().code, ErrorCode::kRefused);
  EXPECT_EQ(writer.finish_stage(0, image_.size_bytes(), image_.sha256()).error().code,
            ErrorCode::kRefused);
}

TEST_F(CheckpointWriterTest, SameStepIsReplaced) {
  write_checkpoint(checkpoints_, 7, {image_});
  const Buffer other_arena = counted_arena(layout_, 5);
  const StageFileImage other({{.layout = layout_, .arena = other_arena.bytes()}});
  const std::string path = write_checkpoint(checkpoints_, 7, {other});
  EXPECT_EQ(read_checkpoint(path, Verify::kContents)->stages[0].parts[0].sha256, other.sha256());
  EXPECT_THAT(files(), ElementsAre("step-7"));
}

// One part comes in pieces, the other lies there: whoever wrote it says what it is.
TEST_F(CheckpointWriterTest, PartsMakeAStage) {
  auto writer = CheckpointWriter::begin(checkpoints_, 7, {2}, 3);
  ASSERT_TRUE(writer);
  ASSERT_TRUE(writer->write_piece(0, 0, image_.piece(0, UINT64_MAX).bytes(), 1));
  ASSERT_TRUE(writer->finish_stage(0, image_.size_bytes(), image_.sha256(), 1));
  EXPECT_FALSE(writer->complete());
  EXPECT_EQ(writer->adopt_part(0, 0, 4, sha256_hex(as_bytes("part"))).error().code,
            ErrorCode::kNotFound);
  folder_.write("run/checkpoints/step-7.3.partial/stage-0-0.safetensors", "part");
  EXPECT_EQ(writer->adopt_part(0, 0, 5, sha256_hex(as_bytes("part"))).error().code,
            ErrorCode::kCorrupt);
  ASSERT_TRUE(writer->adopt_part(0, 0, 4, sha256_hex(as_bytes("part"))));
  EXPECT_EQ(writer->adopt_part(0, 0, 4, "").error().code, ErrorCode::kRefused);
  EXPECT_EQ(writer->adopt_part(0, 2, 4, "").error().code, ErrorCode::kRefused);
  const auto path = writer->commit(small_manifest({1}));
  ASSERT_TRUE(path) << path.error().what;
  EXPECT_THAT(*list_folder(*path),
              ElementsAre("manifest.json", "stage-0-0.safetensors", "stage-0-1.safetensors"));
  EXPECT_TRUE(read_checkpoint(*path, Verify::kContents));
}

}  // namespace
}  // namespace swarmline
