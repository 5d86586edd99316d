// What can't be read as a tokenizer is refused in one sentence that names it.
#include <gtest/gtest.h>

#include "engine/tokenizer/bpe_tokenizer.h"
#include "engine/tokenizer/tokenizer_json.h"
#include "tests/store/temp_folder.h"
#include "tests/tokenizer/fixtures.h"

namespace swarmline {
namespace {

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  if (at != std::string::npos) text.replace(at, from.size(), to);
  return text;
}

std::string refusal(const std::string& text) {
  auto json = parse_tokenizer_json(text, "t.json");
  if (!json) return json.error().what;
  auto made = BpeTokenizer::make(std::move(*json), "t.json", "");
  return made ? "" : made.error().what;
}

TEST(BadTokenizers, EachIsRefusedByName) {
  const std::string gpt2 = slurp(tokenizer_fixture("gpt2.json"));
  const std::string qwen2 = slurp(tokenizer_fixture("qwen2.json"));
  EXPECT_EQ(refusal(gpt2), "");
  EXPECT_EQ(refusal("[1]"), "t.json: found other JSON, expected a tokenizer.json");
  EXPECT_TRUE(refusal("{\"a\":").starts_with("t.json is no JSON")) << refusal("{\"a\":");
  EXPECT_EQ(refusal("{}"),
            "t.json: found the pre_tokenizer none, expected \"ByteLevel\", or \"Split\" and then "
            "\"ByteLevel\"; no other is supported");
  EXPECT_EQ(refusal(replaced(gpt2, R"("type":"BPE")", R"("type":"WordPiece")")),
            "t.json: found a model of type \"WordPiece\", expected \"BPE\"; no other is supported");
  EXPECT_EQ(refusal(replaced(gpt2, R"("byte_fallback":false)", R"("byte_fallback":true)")),
            "t.json: found byte_fallback in the BPE model, expected none; no other is supported");
  EXPECT_EQ(refusal(replaced(gpt2, R"("dropout":null)", R"("dropout":0.1)")),
            "t.json: found dropout in the BPE model, expected none; no other is supported");
  EXPECT_EQ(
      refusal(replaced(qwen2, R"("type":"NFC")", R"("type":"NFKC")")),
      "t.json: found the normalizer \"NFKC\", expected none or \"NFC\"; no other is supported");
  EXPECT_TRUE(refusal(replaced(qwen2, R"("Regex":"(?i:)", R"("Regex":"(?:)"))
                  .starts_with("t.json: found the pre_tokenizer's pattern \"(?:"));
  EXPECT_EQ(refusal(replaced(qwen2, "\"Isolated\"", "\"Removed\"")),
            "t.json: found the pre_tokenizer's behavior \"Removed\", expected \"Isolated\", not "
            "inverted; no other is supported");
  EXPECT_TRUE(refusal(replaced(gpt2, R"("single_word":false)", R"("single_word":true)"))
                  .starts_with("t.json: found single_word in the added token \"<|endoftext|>\""));
  EXPECT_TRUE(refusal(replaced(gpt2, R"("merges":[[)", R"("merges":[["zz","zz"],[)"))
                  .starts_with("t.json: found a merge of \"zz\" and \"zz\", expected tokens"));
  EXPECT_TRUE(refusal(replaced(gpt2, R"("!":1)", R"("!":99999999)"))
                  .starts_with("t.json: found no number of token \"!\", expected one below "));
}

TEST(BadTokenizers, FilesThatAreNoneAreRefused) {
  const TempFolder folder;
  const auto refused = [](const std::string& name) {
    const auto opened = open_tokenizer(name);
    return opened ? std::string() : opened.error().what;
  };
  EXPECT_EQ(refused(folder.at("none.json")),
            "found no tokenizer \"" + folder.at("none.json") +
                "\", expected \"bytes\", a tokenizer.json, a SentencePiece model, or a folder with "
                "one of them");
  EXPECT_TRUE(refused(folder.path()).ends_with("name the tokenizer's file"));
  EXPECT_TRUE(
      refused(folder.write("a.model", "no model at all")).find("found no model of SentencePiece") !=
      std::string::npos);
  EXPECT_NE(refused(folder.write("empty.model", "")), "");
}

TEST(BadTokenizers, TheEndOfADocumentIsWhatTheConfigBesideSays) {
  const TempFolder folder;
  folder.write("tokenizer.json", slurp(tokenizer_fixture("qwen2.json")));
  auto usual = open_tokenizer(folder.path());
  ASSERT_TRUE(usual) << usual.error().what;
  EXPECT_EQ((*usual)->document_end(), (*usual)->find("<|endoftext|>"));
  folder.write("tokenizer_config.json", R"({"eos_token": {"content": "<|im_end|>"}})");
  EXPECT_EQ((*open_tokenizer(folder.path()))->document_end(), (*usual)->find("<|im_end|>"));
  folder.write("tokenizer_config.json", R"({"eos_token": "<|im_start|>"})");
  EXPECT_EQ((*open_tokenizer(folder.at("tokenizer.json")))->document_end(),
            (*usual)->find("<|im_start|>"));
}

}  // namespace
}  // namespace swarmline
