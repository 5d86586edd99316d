// Each text becomes the tokens that PyPI's `tokenizers` and `sentencepiece` made of it.
#include <gtest/gtest.h>

#include "base/rng.h"
#include "engine/tokenizer/text_cut.h"
#include "engine/tokenizer/utf8.h"
#include "tests/tokenizer/fixtures.h"

namespace swarmline {
namespace {

struct Fixture {
  std::string kind, file;
};

class TokenizerExact : public testing::TestWithParam<Fixture> {};

TEST_P(TokenizerExact, EveryHardTextHasTheSameTokens) {
  const auto tokenizer = open_fixture(GetParam().file);
  ASSERT_TRUE(tokenizer);
  const auto cases = tokenizer_cases(GetParam().kind);
  ASSERT_GT(cases.size(), 70U);
  for (const TokenizerCase& one : cases)
    EXPECT_EQ(encoded(*tokenizer, one.text), one.expected) << one.text;
}

TEST_P(TokenizerExact, OneEncoderGivesTheSameWhateverItEncodedBefore) {
  const auto tokenizer = open_fixture(GetParam().file);
  const auto encoder = tokenizer->make_encoder({});
  const auto cases = tokenizer_cases(GetParam().kind);
  for (int round = 0; round < 2; ++round) {
    for (const TokenizerCase& one : cases) {
      std::vector<std::uint32_t> tokens = {7};
      ASSERT_TRUE(encoder->encode(one.text, false, tokens));
      EXPECT_EQ(std::vector(tokens.begin() + 1, tokens.end()), one.expected) << one.text;
    }
  }
}

TEST_P(TokenizerExact, WhatIsDecodedIsTheText) {
  const auto tokenizer = open_fixture(GetParam().file);
  for (const TokenizerCase& one : tokenizer_cases(GetParam().kind)) {
    const std::string text = tokenizer->decode(one.expected, true);
    EXPECT_TRUE(is_utf8(text));
    // NFC, stripped blanks and U+FFFD change a text; encoded once more it is the same.
    const std::string again = tokenizer->decode(encoded(*tokenizer, text), true);
    EXPECT_EQ(again, text);
    if (GetParam().kind == "gpt2" && is_utf8(one.text)) EXPECT_EQ(text, one.text);
  }
}

// A text of `pieces`, drawn from hard texts.
std::string long_text(const std::vector<TokenizerCase>& cases, Rng& rng, int pieces) {
  std::string text;
  for (int i = 0; i < pieces; ++i) {
    append_as_utf8(cases[rng.below(cases.size())].text, text);
    constexpr std::string_view kBetween[] = {"\n",    " ",   "\n\n",     "\n A",
                                             " word", "\na", "a\n\n\nb", "é\n漢"};
    text += kBetween[rng.below(std::size(kBetween))];
  }
  return text;
}

TEST_P(TokenizerExact, ATextThatIsCutHasTheTokensOfTheWhole) {
  const auto tokenizer = open_fixture(GetParam().file);
  if (tokenizer->cuts() == TextCuts::kNowhere) GTEST_SKIP() << "its texts are not cut";
  Rng rng(1);
  const auto cases = tokenizer_cases(GetParam().kind);
  std::size_t cuts = 0;
  for (int round = 0; round < 200; ++round) {
    const std::string text = long_text(cases, rng, 12);
    std::string_view left = text;
    std::vector<std::uint32_t> tokens;
    while (!left.empty()) {
      const std::size_t room = std::min<std::size_t>(left.size(), 1 + rng.below(400));
      std::size_t cut = last_text_cut(left.substr(0, valid_utf8_prefix(left.substr(0, room))));
      const bool goes_on = cut > 0;
      if (!goes_on) cut = left.size();
      cuts += goes_on ? 1 : 0;
      const auto part = encoded(*tokenizer, left.substr(0, cut), goes_on);
      tokens.insert(tokens.end(), part.begin(), part.end());
      left.remove_prefix(cut);
    }
    ASSERT_EQ(tokens, encoded(*tokenizer, text)) << text;
  }
  EXPECT_GT(cuts, 300U);
}

INSTANTIATE_TEST_SUITE_P(Kinds, TokenizerExact,
                         testing::Values(Fixture{"gpt2", "gpt2.json"},
                                         Fixture{"llama3", "llama3.json"},
                                         Fixture{"qwen2", "qwen2.json"},
                                         Fixture{"unigram", "unigram.model"},
                                         Fixture{"bpe", "bpe.model"}),
                         [](const auto& info) { return info.param.kind; });

TEST(Tokenizer, SpecialTokensMayBeTextLikeAnyOther) {
  const auto tokenizer = open_fixture("gpt2.json");
  ASSERT_TRUE(tokenizer->document_end());
  const std::string text = "one<|endoftext|>two";
  const auto found = encoded(*tokenizer, text);
  EXPECT_EQ(std::ranges::count(found, *tokenizer->document_end()), 1);
  const auto plain = encoded(*tokenizer, text, false, {.special_as_text = true});
  EXPECT_EQ(std::ranges::count(plain, *tokenizer->document_end()), 0);
  EXPECT_EQ(tokenizer->decode(plain, true), text);
  EXPECT_EQ(tokenizer->decode(found, true), text);
  EXPECT_EQ(tokenizer->decode(found, false), "onetwo");
}

TEST(Tokenizer, BytesNeedNoFile) {
  const auto tokenizer = open_tokenizer("bytes");
  ASSERT_TRUE(tokenizer);
  EXPECT_EQ((*tokenizer)->vocabulary(), 257U);
  EXPECT_EQ((*tokenizer)->document_end(), 256U);
  EXPECT_EQ(encoded(**tokenizer, "a\xFF"), (std::vector<std::uint32_t>{'a', 255}));
  EXPECT_EQ((*tokenizer)->decode(std::vector<std::uint32_t>{'a', 255, 256, 9999}, true), "a\xFF");
}

// As a text is generated: what each token adds, held back until it is whole characters.
TEST(Tokenizer, TextGrowsTokenByTokenInWholeCharacters) {
  for (const char* file : {"gpt2.json", "unigram.model"}) {
    const auto tokenizer = open_fixture(file);
    const auto tokens = encoded(*tokenizer, " a 👩‍👩‍👧‍👦 漢字 é");
    Utf8Stream stream;
    std::string text;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const std::string more = stream.push(tokenizer->decode_next(tokens[i], i == 0, false));
      EXPECT_TRUE(is_utf8(more));
      text += more;
    }
    text += stream.finish();
    EXPECT_EQ(text, tokenizer->decode(tokens, false)) << file;
  }
}

}  // namespace
}  // namespace swarmline
