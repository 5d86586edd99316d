#include "engine/checkpoint/stage_file_image.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "engine/checkpoint/safetensors.h"
#include "engine/checkpoint/sha256.h"
#include "tests/checkpoint/small_stages.h"
#include "tests/store/temp_folder.h"

namespace swarmline {
namespace {

const std::vector<SmallTensor> kTensors = {
    {"wte", {5, 3}}, {"bias", {7}}, {"none", {0}}, {"scale", {}}, {"tied", {4, 4}}};

TEST(StageFileImageTest, IsTheFileThatReadsBackTheArena) {
  const ParameterLayout layout = small_layout(kTensors);
  const Buffer arena = counted_arena(layout, 1);
  const StageFileImage image({{.layout = layout, .arena = arena.bytes()}});
  const Buffer whole = image.piece(0, UINT64_MAX);
  ASSERT_EQ(whole.size(), image.size_bytes());
  EXPECT_EQ(image.sha256(), sha256_hex(whole.bytes()));

  const TempFolder folder;
  const auto file = SafetensorsFile::open(folder.write("s.safetensors", as_text(whole.bytes())));
  ASSERT_TRUE(file) << file.error().what;
  EXPECT_EQ(file->tensors().size(), 5U);
  for (const ParameterSlot& slot : layout.slots) {
    const TensorInfo* tensor = file->find(slot.name);
    ASSERT_NE(tensor, nullptr) << slot.name;
    EXPECT_EQ(tensor->shape, slot.shape);
    EXPECT_EQ(as_text(file->bytes(*tensor)),
              as_text(arena.bytes().subspan(slot.offset * 4, slot.elements * 4)));
  }
}

TEST(StageFileImageTest, AnyPieceIsThatPartOfTheWhole) {
  const ParameterLayout layout = small_layout(kTensors);
  const Buffer arena = counted_arena(layout, 1);
  const StageFileImage image({{.layout = layout, .arena = arena.bytes()}});
  const Buffer whole = image.piece(0, image.size_bytes());
  Rng rng(1);
  for (int i = 0; i < 2000; ++i) {
    const std::uint64_t offset = rng.below(image.size_bytes() + 1);
    const std::uint64_t size = rng.below(200);
    const Buffer piece = image.piece(offset, size);
    ASSERT_EQ(piece.size(), std::min(size, image.size_bytes() - offset));
    ASSERT_EQ(as_text(piece.bytes()), as_text(whole.bytes().subspan(offset, piece.size())));
  }
}

TEST(StageFileImageTest, TiedSlotsAreLeftToTheOtherStage) {
  const ParameterLayout layout = small_layout(kTensors, 1);
  const Buffer arena = counted_arena(layout, 1);
  const StageFileImage image({{.layout = layout, .arena = arena.bytes(), .with_tied = false}});
  const Buffer whole = image.piece(0, UINT64_MAX);
  const auto header = parse_safetensors(whole.bytes(), "x");
  ASSERT_TRUE(header) << header.error().what;
  EXPECT_EQ(header->tensors.size(), 4U);
  for (const TensorInfo& tensor : header->tensors) EXPECT_NE(tensor.name, "tied");
}

TEST(StageFileImageTest, SeveralPartsShareAFile) {
  const ParameterLayout layout = small_layout({{"a", {3}}});
  const Buffer parameters = counted_arena(layout, 1);
  const Buffer moments = counted_arena(layout, 50);
  const StageFileImage image({{.layout = layout, .arena = parameters.bytes()},
                              {.prefix = "moment1.", .layout = layout, .arena = moments.bytes()}},
                             {});
  const Buffer whole = image.piece(0, UINT64_MAX);
  const auto header = parse_safetensors(whole.bytes(), "x");
  ASSERT_TRUE(header) << header.error().what;
  ASSERT_EQ(header->tensors.size(), 2U);
  EXPECT_EQ(header->tensors[1].name, "moment1.a");
  EXPECT_EQ(as_text(whole.bytes().last(12)), as_text(moments.bytes().first(12)));
}

}  // namespace
}  // namespace swarmline
