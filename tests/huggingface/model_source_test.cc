// Folders of transformers, read and written: the same tensors come out that went in, and what does
// not fit is named.
#include <cstring>
#include <filesystem>
#include <map>

#include <gtest/gtest.h>

#include "engine/huggingface/byte_tokenizer.h"
#include "engine/huggingface/float_convert.h"
#include "engine/huggingface/hf_export.h"
#include "engine/huggingface/initial_parameters.h"
#include "tests/huggingface/hf_fixtures.h"
#include "tests/store/temp_folder.h"

namespace swarmline {
namespace {

using testing::hf_fixture;

struct Kept {
  TensorInfo info;
  std::vector<std::byte> bytes;
};

std::map<std::string, Kept> tensors_of(const std::string& folder) {
  std::map<std::string, Kept> all;
  const auto names = list_folder(folder);
  for (const std::string& name : *names) {
    if (!name.ends_with(".safetensors")) continue;
    const auto file = SafetensorsFile::open(folder + "/" + name);
    EXPECT_TRUE(file) << file.error().what;
    for (const TensorInfo& info : file->tensors()) {
      const BytesView bytes = file->bytes(info);
      all[info.name] = {info, {bytes.begin(), bytes.end()}};
    }
  }
  return all;
}

class HfFolders : public ::testing::TestWithParam<const char*> {
 protected:
  ModelSource open(const std::string& text) {
    auto source = ModelSource::open(text);
    EXPECT_TRUE(source) << source.error().what;
    return std::move(*source);
  }
  TempFolder temp_;
};

TEST_P(HfFolders, ComeOutAsTheyWentIn) {
  const ModelSource source = open("hf:" + hf_fixture(GetParam()));
  const std::string out = temp_.at("out");
  const auto exported = export_hf(
      source,
      {.out = out, .dtype = std::nullopt, .shard_bytes = 20000, .end_token = {}, .files = {}});
  ASSERT_TRUE(exported) << exported.error().what;
  EXPECT_GT(exported->files.size(), 1U);
  EXPECT_TRUE(file_exists(out + "/model.safetensors.index.json"));
  const auto before = tensors_of(hf_fixture(GetParam())), after = tensors_of(out);
  ASSERT_EQ(before.size(), after.size());
  for (const auto& [name, tensor] : before) {
    ASSERT_TRUE(after.contains(name)) << name;
    EXPECT_EQ(after.at(name).info.dtype, tensor.info.dtype) << name;
    EXPECT_EQ(after.at(name).info.shape, tensor.info.shape) << name;
    EXPECT_EQ(after.at(name).bytes, tensor.bytes) << name;
  }
  const ModelSource again = open(out);
  EXPECT_EQ(again.model().shape, source.model().shape);
  EXPECT_EQ(again.model().sequence, source.model().sequence);
}

// A checkpoint of a run that began with it holds the same values, in the run's type.
TEST_P(HfFolders, BecomeTheCheckpointThatARunBeginsWith) {
  const ModelSource source = open(hf_fixture(GetParam()));
  ModelSpec model = source.model();
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    model.shape.dtype = dtype;
    const StageSpec whole = whole_model(model, {});
    Manifest manifest{.run = "begun", .sequence = model.sequence, .model = model.shape};
    const auto path = write_initial_parameters(source, model, whole, manifest,
                                               temp_.at(dtype == DType::kF32 ? "a" : "b"));
    ASSERT_TRUE(path) << path.error().what;
    const ModelSource checkpoint = open("checkpoint:" + *path);
    const ParameterLayout layout = make_layout(model, whole);
    ASSERT_TRUE(checkpoint.check(model, layout));
    for (const ParameterSlot& slot : layout.slots) {
      Buffer theirs(slot.elements * sizeof(double)), ours(slot.elements * sizeof(double));
      source.read(slot.name, DType::kF64, theirs.bytes());
      checkpoint.read(slot.name, DType::kF64, ours.bytes());
      EXPECT_EQ(std::memcmp(theirs.data(), ours.data(), ours.size()), 0) << slot.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Transformers, HfFolders, ::testing::ValuesIn(testing::kHfFixtures),
                         [](const auto& info) { return std::string(info.param); });

class HfMisfits : public ::testing::Test {
 protected:
  // The sentence about a run's model that is `change`d from the folder's.
  std::string sentence(const std::function<void(ModelSpec&)>& change,
                       const char* fixture = "llama") {
    auto source = ModelSource::open(hf_fixture(fixture));
    EXPECT_TRUE(source) << source.error().what;
    ModelSpec model = source->model();
    change(model);
    const auto fits = check_initial_parameters(*source, model, whole_model(model, {}));
    return fits ? "" : fits.error().what;
  }
  static bool has(const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
  }
  TempFolder temp_;
};

TEST_F(HfMisfits, EachKeyAndTensorIsNamed) {
  EXPECT_EQ(sentence([](ModelSpec&) {}), "");
  EXPECT_EQ(sentence([](ModelSpec& m) { m.shape.dropout = 0.5; }), "") << "only training has it";
  const std::string wider = sentence([](ModelSpec& m) { m.shape.d_ff = 48; });
  EXPECT_TRUE(has(wider, "model.d_ff is 48, and there 40")) << wider;
  for (const char* layer : {"0", "1", "2"})
    EXPECT_TRUE(has(wider, std::string("layers.") + layer +
                               ".mlp.down.weight is BF16 (24, 40), expected (24, 48)"))
        << wider;
  const std::string normed = sentence([](ModelSpec& m) { m.shape.qk_norm = true; });
  EXPECT_TRUE(has(normed, "missing tensors: layers.0.attention.q_norm.weight")) << normed;
  const std::string tied = sentence([](ModelSpec& m) { m.shape.tied_embeddings = true; });
  EXPECT_TRUE(has(tied, "extra tensors: head.weight")) << tied;
  const std::string theta = sentence([](ModelSpec& m) { m.shape.rope_theta = 10000; });
  EXPECT_TRUE(has(theta, "model.rope_theta is 10000, and there 500000")) << theta;
}

TEST_F(HfMisfits, PositionsMayReachFurtherThanTheRunNeeds) {
  EXPECT_EQ(sentence([](ModelSpec& m) { m.sequence = 9; }, "gpt2"), "");
  const std::string longer = sentence([](ModelSpec& m) { m.sequence = 99; }, "gpt2");
  EXPECT_TRUE(has(longer, "batch.sequence is 99, and there positions reach to 24")) << longer;
  EXPECT_EQ(sentence([](ModelSpec& m) { m.sequence = 99; }, "llama"), "");
}

TEST_F(HfMisfits, WhatAFolderLacksIsNamedAsItIsCalledThere) {
  namespace fs = std::filesystem;
  const std::string folder = temp_.at("folder");
  fs::copy(hf_fixture("gpt2_untied"), folder);
  fs::remove(folder + "/model.safetensors.index.json");
  auto source = ModelSource::open(folder);
  ASSERT_FALSE(source);
  EXPECT_TRUE(has(source.error().what, "neither model.safetensors nor")) << source.error().what;
  // One shard under the name of the whole.
  fs::rename(folder + "/model-00001-of-00008.safetensors", folder + "/model.safetensors");
  source = ModelSource::open(folder);
  ASSERT_TRUE(source) << source.error().what;
  const ModelSpec model = source->model();
  const auto fits = check_initial_parameters(*source, model, whole_model(model, {}));
  ASSERT_FALSE(fits);
  EXPECT_TRUE(has(fits.error().what, "(of the folder)")) << fits.error().what;
  const auto exported = export_hf(*source, {.out = temp_.at("out")});
  EXPECT_FALSE(exported);
}

TEST_F(HfMisfits, AFolderThatIsThereIsNotWrittenOver) {
  auto source = ModelSource::open(hf_fixture("gpt2"));
  ASSERT_TRUE(source);
  const auto exported = export_hf(*source, {.out = temp_.path()});
  ASSERT_FALSE(exported);
  EXPECT_EQ(exported.error().code, ErrorCode::kUserMistake);
  EXPECT_TRUE(has(exported.error().what, "is there already")) << exported.error().what;
}

TEST(FloatConvert, RoundsToNearestEvenAndKeepsWhatFits) {
  const std::vector<float> values = {0.0F, -1.5F, 1.00390625F, 3.3895314e38F, 65504.0F, 6e-8F};
  const BytesView bytes = std::as_bytes(std::span(values));
  for (const DType narrow : {DType::kBF16, DType::kF16, DType::kF64, DType::kF32}) {
    std::vector<std::byte> there(values.size() * size_bytes(narrow));
    convert_floats(DType::kF32, bytes, narrow, there);
    std::vector<float> back(values.size());
    convert_floats(narrow, there, DType::kF32, std::as_writable_bytes(std::span(back)));
    EXPECT_EQ(back[1], -1.5F);
    if (narrow == DType::kF64 || narrow == DType::kF32) EXPECT_EQ(back, values);
    if (narrow == DType::kBF16) EXPECT_EQ(back[2], 1.0F) << "half way: to even";
    if (narrow == DType::kF16) EXPECT_EQ(back[4], 65504.0F);
  }
}

TEST(ByteTokenizer, HasALetterForEachByteAndTheEnd) {
  const std::string text = byte_tokenizer_json();
  EXPECT_NE(text.find("\"A\": 65"), std::string::npos);
  EXPECT_NE(text.find("\"\xC4\xA0\": 32"), std::string::npos) << "a space is U+0120";
  EXPECT_NE(text.find("\"\xC4\x8A\": 10"), std::string::npos) << "a new line is U+010A";
  EXPECT_NE(text.find("\"<|endoftext|>\": 256"), std::string::npos);
}

}  // namespace
}  // namespace swarmline
