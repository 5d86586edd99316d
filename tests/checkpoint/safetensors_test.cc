#include "engine/checkpoint/safetensors.h"

#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/golden/golden.h"
#include "tests/store/temp_folder.h"

namespace swarmline {
namespace {

using testing::HasSubstr;
using Tensors = std::vector<TensorInfo>;

std::string with_length(std::string_view json, std::size_t data_bytes) {
  const std::uint64_t length = json.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file + std::string(json) + std::string(data_bytes, 'd');
}

TEST(SafetensorsTest, RoundTrip) {
  const SafetensorsLayout layout =
      lay_out_safetensors({{.name = "a", .dtype = DType::kF32, .shape = {2, 3}},
                           {.name = "empty", .dtype = DType::kF64, .shape = {0, 4}},
                           {.name = "scalar \"quoted\"\n", .dtype = DType::kBF16, .shape = {}},
                           {.name = "bytes", .dtype = DType::kU8, .shape = {5}}},
                          {{"format", "pt"}, {"note", "gr\xC3\xBC\xC3\x9F"}});
  EXPECT_EQ(layout.header.size() % kSafetensorsAlignment, 0U);
  EXPECT_EQ(layout.bytes, layout.header.size() + 24 + 0 + 2 + 5);
  std::string data(24, 'a');
  data += "ss12345";

  const TempFolder folder;
  const std::string path = folder.write("x.safetensors", layout.header + data);
  const auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file) << file.error().what;
  EXPECT_EQ(file->tensors().size(), 4U);
  EXPECT_EQ(file->metadata().at("note"), "gr\xC3\xBC\xC3\x9F");
  ASSERT_NE(file->find("bytes"), nullptr);
  EXPECT_EQ(as_text(file->bytes(*file->find("bytes"))), "12345");
  EXPECT_EQ(as_text(file->bytes(*file->find("scalar \"quoted\"\n"))), "ss");
  EXPECT_EQ(file->find("a")->shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(file->find("a")->dtype, DType::kF32);
  EXPECT_TRUE(file->bytes(*file->find("empty")).empty());
  EXPECT_EQ(file->find("b"), nullptr);
}

TEST(SafetensorsTest, EmptyFileOfTensorsIsValid) {
  const SafetensorsLayout layout = lay_out_safetensors({}, {});
  const auto header = parse_safetensors(as_bytes(layout.header), "x");
  ASSERT_TRUE(header) << header.error().what;
  EXPECT_TRUE(header->tensors.empty());
}

// Another writer's order of keys and tensors, and no padding.
TEST(SafetensorsTest, ReadsWhatOthersWrite) {
  const std::string file =
      with_length(R"({"b":{"data_offsets":[4,8],"dtype":"I32","shape":[1]},)"
                  R"( "a":{"shape":[4],"dtype":"U8","data_offsets":[0,4]}}   )",
                  8);
  const auto header = parse_safetensors(as_bytes(file), "x");
  ASSERT_TRUE(header) << header.error().what;
  EXPECT_EQ(header->tensors[0].name, "a");
  EXPECT_EQ(header->tensors[1].name, "b");
  EXPECT_EQ(header->tensors[1].offset, 4U);
}

TEST(SafetensorsTest, GoldenHeader) {
  const SafetensorsLayout layout =
      lay_out_safetensors({{.name = "h.0.ln_1.weight", .shape = {4}},
                           {.name = "h.0.attn.weight", .dtype = DType::kF64, .shape = {2, 2}}},
                          {{"format", "pt"}});
  expect_golden("checkpoint/header.safetensors", layout.header + std::string(48, '\0'));
}

struct BadFile {
  const char* name;
  std::string bytes;
  const char* sentence;
  ErrorCode code = ErrorCode::kCorrupt;
};

std::string tensor(std::string_view members, std::size_t data_bytes = 4) {
  return with_length("{\"t\":{" + std::string(members) + "}}", data_bytes);
}

const std::vector<BadFile> kBadFiles = {
    {"Empty", "", "0 bytes are no safetensors file"},
    {"SevenBytes", "1234567", "7 bytes are no safetensors file"},
    {"HeaderBeyondLimit", std::string("\1\xE1\xF5\5\0\0\0\0{}", 10),
     "a header of 100000001 bytes; at most 100000000 are allowed"},
    {"HeaderOfNearly2To64", std::string(8, '\xFF') + "{}", "a header of 18446744073709551615"},
    {"HeaderLongerThanFile", with_length("{}", 0).replace(0, 1, "\x3"), "does not fit"},
    {"NoBrace", with_length(" {}", 0), "does not start with \"{\""},
    {"NoJson", with_length("{\"a\"", 0), "the header is no JSON"},
    {"TextAfterJson", with_length("{} x", 0), "the header is no JSON"},
    {"NotUtf8", with_length("{\"\xFF\":1}", 0), "the header is no JSON"},
    {"TooDeep", with_length("{\"a\":" + std::string(50, '[') + std::string(50, ']') + "}", 0),
     "the header is no JSON"},
    {"TensorTwice",
     with_length(R"({"t":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                 R"("t":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
                 4),
     "has the key \"t\" twice"},
    {"EscapedTwice", with_length(R"({"t":1,"\u0074":2})", 0), "has the key \"t\" twice"},
    {"TensorNoObject", with_length(R"({"t":[]})", 0), "tensor \"t\" is no JSON object"},
    {"MissingShape", tensor(R"("dtype":"F32","data_offsets":[0,4])"), "does not have exactly"},
    {"SurplusKey", tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1)"),
     "does not have exactly"},
    {"DtypeNoString", tensor(R"("dtype":4,"shape":[1],"data_offsets":[0,4])"), "no string"},
    {"DtypeUnknown", tensor(R"("dtype":"F8_E4M3","shape":[4],"data_offsets":[0,4])"),
     "has the dtype \"F8_E4M3\", which is not supported", ErrorCode::kIncompatible},
    {"ShapeNoList", tensor(R"("dtype":"F32","shape":1,"data_offsets":[0,4])"), "no list"},
    {"ShapeNegative", tensor(R"("dtype":"F32","shape":[-1],"data_offsets":[0,4])"),
     "something but sizes"},
    {"ShapeFraction", tensor(R"("dtype":"F32","shape":[1.0],"data_offsets":[0,4])"),
     "something but sizes"},
    {"ShapeBeyondInt64",
     tensor(R"("dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4])"),
     "something but sizes"},
    {"ShapeOverflows",
     tensor(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4])"),
     "whose size overflows"},
    // 2^62 * 4 + 4 wraps to 4 in 64 bits.
    {"ShapeWrapsToRange",
     tensor(R"("dtype":"F32","shape":[4611686018427387905],"data_offsets":[0,4])"),
     "whose size overflows"},
    {"TooManyDimensions",
     tensor(R"("dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4])"),
     "has 9 dimensions; at most 8"},
    {"OffsetsOneNumber", tensor(R"("dtype":"F32","shape":[1],"data_offsets":[4])"),
     "not two numbers"},
    {"OffsetsBackwards", tensor(R"("dtype":"F32","shape":[1],"data_offsets":[4,0])"), "no range"},
    {"OffsetsNegative", tensor(R"("dtype":"F32","shape":[1],"data_offsets":[-4,0])"), "no range"},
    {"BeyondTheFile", tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])"),
     "ends at byte 8 of 4 bytes of data: the file was cut short"},
    {"RangeNotTheShapes", tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])"),
     "of shape (2) F32 needs 8 bytes and has 4"},
    {"GapInFront", tensor(R"("dtype":"U8","shape":[3],"data_offsets":[1,4])"),
     "starts at byte 1 where the one before ends at 0"},
    {"BytesAtTheEnd", tensor(R"("dtype":"U8","shape":[3],"data_offsets":[0,3])"),
     "the tensors cover 3 of 4 bytes"},
    {"Overlap",
     with_length(R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},)"
                 R"("b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
                 4),
     "starts at byte 2 where the one before ends at 3"},
    {"MetadataNoObject", with_length(R"({"__metadata__":1})", 0), "__metadata__ is no JSON object"},
    {"MetadataNoStrings", with_length(R"({"__metadata__":{"a":1}})", 0), "something but strings"},
};

class BadSafetensorsTest : public testing::TestWithParam<BadFile> {};

TEST_P(BadSafetensorsTest, IsRefusedWithItsSentence) {
  const auto header = parse_safetensors(as_bytes(GetParam().bytes), "stage.safetensors");
  ASSERT_FALSE(header);
  EXPECT_EQ(header.error().code, GetParam().code);
  EXPECT_THAT(header.error().what, HasSubstr("stage.safetensors: "));
  EXPECT_THAT(header.error().what, HasSubstr(GetParam().sentence));
}

INSTANTIATE_TEST_SUITE_P(All, BadSafetensorsTest, testing::ValuesIn(kBadFiles),
                         [](const auto& info) { return info.param.name; });

// A file cut anywhere is never taken for whole.
TEST(SafetensorsTest, EveryCutIsRefused) {
  const SafetensorsLayout layout =
      lay_out_safetensors({{.name = "a", .shape = {3}}, {.name = "b", .shape = {2}}}, {});
  const std::string file = layout.header + std::string(20, 'x');
  ASSERT_TRUE(parse_safetensors(as_bytes(file), "x"));
  for (std::size_t size = 0; size < file.size(); ++size) {
    EXPECT_FALSE(parse_safetensors(as_bytes(file).first(size), "x")) << size;
  }
  EXPECT_FALSE(parse_safetensors(as_bytes(file + "y"), "x"));
}

TEST(SafetensorsDeathTest, NamesMustDiffer) {
  EXPECT_DEATH(lay_out_safetensors(Tensors(2, {.name = "a", .shape = {1}}), {}), "a");
}

}  // namespace
}  // namespace swarmline
