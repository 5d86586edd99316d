#include "engine/checkpoint/manifest.h"

#include <cmath>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "tests/checkpoint/small_stages.h"
#include "tests/golden/golden.h"
#include "tests/store/temp_folder.h"

namespace swarmline {
namespace {

using testing::HasSubstr;

Manifest sample() {
  Manifest manifest = small_manifest({3, 5});
  manifest.run = "a \"run\"";
  manifest.model.norm = NormKind::kRmsNorm;
  manifest.model.activation = ActivationKind::kSwiGlu;
  manifest.model.positions = PositionKind::kRotary;
  manifest.model.bias = false;
  manifest.model.dropout = 0.1;
  manifest.model.dtype = DType::kF64;
  manifest.model.share_layers = 2;
  manifest.era = 2;
  manifest.stages[0].parts[0].bytes = 1234;
  manifest.stages[1].parts[0].bytes = 5'000'000'000;
  manifest.stages[1].parts[0].sha256 = std::string(64, 'f');
  return manifest;
}

// A changed file must raise kCheckpointFormat and docs/formats/checkpoint.md.
TEST(ManifestTest, Golden) {
  expect_golden("checkpoint/manifest.json", to_json(sample()));
}

// What was written by older ones is read for ever.
TEST(ManifestTest, TheOldestFormatIsRead) {
  std::ifstream file(std::string(SWARMLINE_SOURCE_DIR) +
                     "/tests/golden/checkpoint/manifest_format_1.json");
  std::stringstream text;
  text << file.rdbuf();
  const auto read = parse_manifest(text.str(), "m");
  ASSERT_TRUE(read) << read.error().what;
  Manifest same = sample();
  same.era = 0;
  EXPECT_EQ(to_json(*read), to_json(same));
}

TEST(ManifestTest, TokensAreThereWhereTheyAreKnown) {
  Manifest manifest = sample();
  EXPECT_EQ(to_json(manifest).find("tokens"), std::string::npos);
  manifest.tokens = 123'456'789'012;
  const auto read = parse_manifest(to_json(manifest), "m");
  ASSERT_TRUE(read) << read.error().what;
  EXPECT_EQ(read->tokens, manifest.tokens);
  EXPECT_EQ(to_json(*read), to_json(manifest));
}

TEST(ManifestTest, AStageInParts) {
  Manifest manifest = sample();
  manifest.stages[1].parts.clear();
  for (std::uint32_t part = 0; part < 3; ++part)
    manifest.stages[1].parts.push_back(
        {.file = part_file_name(1, part, 3), .sha256 = std::string(64, 'a'), .bytes = part});
  const std::string json = to_json(manifest);
  const auto read = parse_manifest(json, "m");
  ASSERT_TRUE(read) << read.error().what;
  EXPECT_EQ(to_json(*read), json);
  EXPECT_EQ(read->stages[1].parts[2].file, "stage-1-2.safetensors");
  std::string wrong = json;
  wrong.replace(wrong.find("stage-1-2"), 9, "stage-1-1");
  EXPECT_FALSE(parse_manifest(wrong, "m"));
  manifest.stages[1].parts.resize(kStagePartsMax + 1, manifest.stages[1].parts[0]);
  EXPECT_FALSE(parse_manifest(to_json(manifest), "m"));
}

TEST(ManifestTest, BoundariesAndCompute) {
  Manifest manifest = sample();
  EXPECT_EQ(to_json(manifest).find("boundar"), std::string::npos);
  EXPECT_EQ(to_json(manifest).find("stream"), std::string::npos);
  manifest.model.boundary = BoundaryKind::kMaxout;
  manifest.model.boundary_factor = 4;
  manifest.boundaries = {3};
  manifest.model.compute = ComputeKind::kFp8;
  manifest.model.stream = StreamKind::kBF16;
  const std::string json = to_json(manifest);
  const auto read = parse_manifest(json, "m");
  ASSERT_TRUE(read) << read.error().what;
  EXPECT_EQ(to_json(*read), json);
  EXPECT_EQ(read->model, manifest.model);
  EXPECT_EQ(read->boundaries, manifest.boundaries);
  for (const char* bad : {"[5, 3]", "[3, 3]", "[-1]", "[9]", "3", "[\"a\"]"}) {
    std::string changed = json;
    const std::size_t at = changed.find('[', changed.find("\"boundaries\""));
    changed.replace(at, changed.find(']', at) + 1 - at, bad);
    const auto refused = parse_manifest(changed, "m");
    ASSERT_FALSE(refused) << bad;
    EXPECT_NE(refused.error().what.find("boundaries"), std::string::npos) << refused.error().what;
  }
}

TEST(ManifestTest, RoundTrip) {
  const auto manifest = parse_manifest(to_json(sample()), "m");
  ASSERT_TRUE(manifest) << manifest.error().what;
  EXPECT_EQ(to_json(*manifest), to_json(sample()));
  EXPECT_EQ(manifest->run, "a \"run\"");
  EXPECT_EQ(manifest->model.norm, NormKind::kRmsNorm);
  EXPECT_EQ(manifest->model.rope_theta, 10000);
  EXPECT_EQ(manifest->stages[1].parts[0].bytes, 5'000'000'000U);
}

// Found by the fuzzer: numbers of many digits came back an ulp away from what was written.
TEST(ManifestTest, EveryNumberIsReadExactly) {
  Rng rng(5);
  std::vector<double> numbers{1.002222227222222e38, 0.30000000000000004, 10000};
  for (int i = 0; i < 2000; ++i)
    numbers.push_back(std::ldexp(1 + rng.uniform(), static_cast<int>(rng.below(600)) - 300));
  for (const double number : numbers) {
    Manifest manifest = sample();
    manifest.model.rope_theta = number;
    const auto again = parse_manifest(to_json(manifest), "m");
    ASSERT_TRUE(again) << again.error().what;
    EXPECT_EQ(again->model.rope_theta, number);
  }
}

TEST(ManifestTest, LaterAdditionsAreNoObstacle) {
  std::string text = to_json(sample());
  text.insert(1, "\"future\": {\"a\": [1, 2]},");
  EXPECT_TRUE(parse_manifest(text, "m"));
}

struct BadManifest {
  const char* name;
  const char* from;  // replaced in the sample ...
  const char* to;    // ... by this
  const char* sentence;
  ErrorCode code = ErrorCode::kCorrupt;
};

const std::vector<BadManifest> kBadManifests = {
    {"NoJson", "\"run\"", "run", "step-7/manifest.json is no JSON"},
    {"NewerFormat", "\"format\": 2", "\"format\": 3",
     "has format 3, and this swarmline knows formats 1 to 2", ErrorCode::kIncompatible},
    {"NoFormat", "\"format\": 2,", "", "has no \"format\""},
    {"FormatText", "\"format\": 2", "\"format\": \"2\"", "\"format\" is no whole number"},
    {"StepNegative", "\"step\": 7", "\"step\": -7", "\"step\" is no whole number"},
    {"StepFraction", "\"step\": 7", "\"step\": 7.5", "\"step\" is no whole number"},
    {"StepTwice", "\"step\": 7", "\"step\": 7, \"step\": 8", "has the key \"step\" twice"},
    {"SequenceTooLarge", "\"sequence\": 8", "\"sequence\": 4294967296", "\"sequence\" is no whole"},
    {"RunNoText", "\"run\": \"a \\\"run\\\"\"", "\"run\": 3", "\"run\" is no string"},
    {"FlagNoFlag", "\"optimizer_state\": false", "\"optimizer_state\": 0",
     "\"optimizer_state\" is neither true nor false"},
    {"ModelGone", "\"model\":", "\"models\":", "has no \"model\""},
    {"ModelNoObject", "\"model\": {", "\"model\": 5, \"m\": {", "model is no JSON object"},
    {"NormUnknown", "\"rmsnorm\"", "\"batchnorm\"", "model: \"norm\" is the unknown \"batchnorm\""},
    {"DropoutText", "\"dropout\": 0.1", "\"dropout\": \"0.1\"", "\"dropout\" is no number"},
    {"DropoutInfinite", "\"dropout\": 0.1", "\"dropout\": 1e999", "\"dropout\" is no number"},
    {"StagesGone", "\"stages\":", "\"stage\":", "has no \"stages\""},
    {"StagesEmpty", "\"stages\": [", "\"stages\": [], \"s\": [", "no list of 1 to 1024 stages"},
    {"StageNoObject", "\"stages\": [", "\"stages\": [4, ", "stage 0 is no JSON object"},
    {"PathOutOfTheFolder", "stage-1.safetensors", "../stage-1.safetensors",
     "stage 1 part 0: \"file\" is not \"stage-1.safetensors\""},
    {"OtherStagesFile", "stage-1.safetensors", "stage-0.safetensors",
     "stage 1 part 0: \"file\" is not"},
    {"HashTooShort", "\"000", "\"00", "\"sha256\" is not 64 hex digits"},
    {"HashNotHex", "\"000", "\"00g", "\"sha256\" is not 64 hex digits"},
    {"BytesBeyondBound", "5000000000", "5000000000000000", "\"bytes\" is no whole number"},
    {"LayerGap", "\"first_layer\": 3", "\"first_layer\": 4", "not where the stage before ends"},
    {"LayersBackwards", "\"last_layer\": 3", "\"last_layer\": -1", "\"last_layer\" is no whole"},
    {"LayersMissing", "\"last_layer\": 8", "\"last_layer\": 7", "hold 7 of the model's 8 layers"},
};

class BadManifestTest : public testing::TestWithParam<BadManifest> {};

TEST_P(BadManifestTest, IsRefusedWithItsSentence) {
  std::string text = to_json(sample());
  const std::size_t at = text.find(GetParam().from);
  ASSERT_NE(at, std::string::npos);
  text.replace(at, std::string_view(GetParam().from).size(), GetParam().to);
  const auto manifest = parse_manifest(text, "step-7/manifest.json");
  ASSERT_FALSE(manifest);
  EXPECT_EQ(manifest.error().code, GetParam().code);
  EXPECT_THAT(manifest.error().what, HasSubstr("step-7/manifest.json"));
  EXPECT_THAT(manifest.error().what, HasSubstr(GetParam().sentence));
}

INSTANTIATE_TEST_SUITE_P(All, BadManifestTest, testing::ValuesIn(kBadManifests),
                         [](const auto& info) { return info.param.name; });

TEST(ManifestTest, TooLongIsRefusedUnread) {
  const auto manifest = parse_manifest(std::string(kManifestBytesMax + 1, ' '), "m");
  ASSERT_FALSE(manifest);
  EXPECT_THAT(manifest.error().what, HasSubstr("longer than"));
}

}  // namespace
}  // namespace swarmline
