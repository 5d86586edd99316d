#include "engine/checkpoint/checkpoint_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/small_stages.h"
#include "tests/store/temp_folder.h"

namespace swarmline {
namespace {

using testing::HasSubstr;

// Two stages, the second one tied to the first one's embedding.
class CheckpointReaderTest : public testing::Test {
 protected:
  CheckpointReaderTest() {
    const StageFileImage a({{.layout = first_, .arena = first_arena_.bytes()}});
    const StageFileImage b(
        {{.layout = second_, .arena = second_arena_.bytes(), .with_tied = false}});
    path_ = write_checkpoint(folder_.at("run/checkpoints"), 7, {a, b});
  }
  CheckpointReader open(const std::string& path) {
    auto reader = CheckpointReader::open(path);
    EXPECT_TRUE(reader) << reader.error().what;
    return std::move(*reader);
  }
  Error refusal(const std::string& path) {
    const auto reader = CheckpointReader::open(path);
    EXPECT_FALSE(reader);
    return reader ? Error{} : reader.error();
  }

  ParameterLayout first_ = small_layout({{"h.0.w", {4, 3}}, {"wte", {5, 2}}}, 1);
  ParameterLayout second_ = small_layout({{"h.1.w", {4, 3}}, {"wte", {5, 2}}}, 1);
  Buffer first_arena_ = counted_arena(first_, 1);
  Buffer second_arena_ = counted_arena(second_, 1001);
  TempFolder folder_;
  std::string path_;
};

TEST_F(CheckpointReaderTest, FindsTheCheckpointFromAnyOfItsPaths) {
  for (const std::string& path :
       {folder_.at("run"), folder_.at("run/checkpoints"), folder_.at("run/checkpoints/step-7")}) {
    const CheckpointReader reader = open(path);
    EXPECT_EQ(reader.path(), path_);
    EXPECT_EQ(reader.tensors().size(), 3U);
    ASSERT_TRUE(reader.manifest());
    EXPECT_EQ(reader.manifest()->run, "tiny");
  }
  const CheckpointReader single = open(path_ + "/stage-1.safetensors");
  EXPECT_EQ(single.tensors().size(), 1U);
  EXPECT_FALSE(single.manifest());
}

TEST_F(CheckpointReaderTest, LoadsIntoAnotherNumberOfStages) {
  const ParameterLayout one = small_layout({{"wte", {5, 2}}, {"h.0.w", {4, 3}}, {"h.1.w", {4, 3}}});
  Buffer arena = Buffer::zeroed(one.bytes());
  const auto loaded = open(path_).load(one, arena.bytes());
  ASSERT_TRUE(loaded) << loaded.error().what;
  EXPECT_EQ(arena.as<float>()[one.slots[0].offset], 101);  // second slot of the first stage
  EXPECT_EQ(arena.as<float>()[one.slots[1].offset], 1);
  EXPECT_EQ(arena.as<float>()[one.slots[2].offset + 11], 1012);
  EXPECT_EQ(arena.as<float>()[one.slots[1].offset + 12], 0) << "gaps stay";
}

TEST_F(CheckpointReaderTest, TiedTensorComesFromTheStageThatStoresIt) {
  Buffer arena = Buffer::zeroed(second_.bytes());
  ASSERT_TRUE(open(path_).load(second_, arena.bytes()));
  EXPECT_EQ(arena.as<float>()[second_.tied_offset], 101);
}

TEST_F(CheckpointReaderTest, SaysWhatDoesNotFit) {
  const auto load = [&](ParameterLayout layout) {
    Buffer arena = Buffer::zeroed(layout.bytes());
    const auto loaded = open(path_).load(layout, arena.bytes());
    EXPECT_FALSE(loaded);
    return loaded ? Error{} : loaded.error();
  };
  const Error absent = load(small_layout({{"h.2.w", {4, 3}}}));
  EXPECT_EQ(absent.code, ErrorCode::kNotFound);
  EXPECT_THAT(absent.what, HasSubstr("has no tensor \"h.2.w\""));
  const Error shape = load(small_layout({{"h.0.w", {3, 4}}}));
  EXPECT_EQ(shape.code, ErrorCode::kIncompatible);
  EXPECT_THAT(shape.what, HasSubstr("is F32 (4, 3), and the model needs F32 (3, 4)"));
  ParameterLayout wide = small_layout({{"h.0.w", {4, 3}}});
  wide.dtype = DType::kF64;
  EXPECT_THAT(load(wide).what, HasSubstr("the model needs F64 (4, 3)"));
}

TEST_F(CheckpointReaderTest, SaysWhatIsNoCheckpoint) {
  EXPECT_EQ(refusal(folder_.at("nowhere")).code, ErrorCode::kNotFound);
  EXPECT_THAT(refusal(folder_.path()).what, HasSubstr("holds no checkpoint: name a run folder"));
  EXPECT_EQ(refusal(folder_.write("text", "hello, world")).code, ErrorCode::kCorrupt);
}

TEST_F(CheckpointReaderTest, TensorInTwoFilesIsCorrupt) {
  const StageFileImage a({{.layout = first_, .arena = first_arena_.bytes()}});
  const Error error = refusal(write_checkpoint(folder_.at("twice"), 1, {a, a}));
  EXPECT_EQ(error.code, ErrorCode::kCorrupt);
  EXPECT_THAT(error.what, HasSubstr("is in another stage's file too"));
}

}  // namespace
}  // namespace swarmline
