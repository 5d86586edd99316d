#include <algorithm>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "engine/tokenizer/added_tokens.h"
#include "engine/tokenizer/bpe_model.h"
#include "engine/tokenizer/byte_alphabet.h"
#include "engine/tokenizer/composed_text.h"
#include "engine/tokenizer/text_cut.h"
#include "engine/tokenizer/utf8.h"
#include "engine/tokenizer/word_splitter.h"

namespace swarmline {
namespace {

using Tokens = std::vector<std::uint32_t>;

TEST(Utf8, ReplacesEachMaximalSubpartAsPythonDoes) {
  const auto replaced = [](std::string_view bytes) {
    std::string text;
    append_as_utf8(bytes, text);
    return text;
  };
  const std::string r(kReplacement);
  EXPECT_EQ(replaced("a\xFFz"), "a" + r + "z");
  EXPECT_EQ(replaced("\xE2\x82"), r);
  EXPECT_EQ(replaced("\xE2\x28\xA1"), r + "(" + r);
  EXPECT_EQ(replaced("\xF0\x9F\x98"
                     "a"),
            r + "a");
  EXPECT_EQ(replaced("\xED\xA0\x80"), r + r + r);
  EXPECT_EQ(replaced("\xC0\xAF"), r + r);
  EXPECT_EQ(replaced("12345678\xC3\xA9"
                     "12345678"),
            "12345678\xC3\xA9"
            "12345678");
}

TEST(Utf8, AStreamGivesWholeCharactersWhereverItIsCut) {
  const std::string text = "aé漢😀\xFFz\xE2\x82";
  std::string expected;
  append_as_utf8(text, expected);
  for (std::size_t step = 1; step <= text.size(); ++step) {
    Utf8Stream stream;
    std::string got;
    for (std::size_t at = 0; at < text.size(); at += step) {
      const std::string more = stream.push(std::string_view(text).substr(at, step));
      EXPECT_TRUE(is_utf8(more));
      got += more;
    }
    EXPECT_EQ(got + stream.finish(), expected) << step;
  }
}

TEST(ByteAlphabet, EachByteHasACharacterAndOthersHaveNone) {
  EXPECT_EQ(bytes_of_piece("Ġhello"), " hello");
  EXPECT_EQ(bytes_of_piece("Ċ"), "\n");
  EXPECT_EQ(bytes_of_piece("é"), "\xE9");
  EXPECT_FALSE(bytes_of_piece(" "));
  EXPECT_FALSE(bytes_of_piece("漢"));
}

TEST(ComposedText, MarksAreComposedAndPlainTextIsLeftAsItIs) {
  std::string room;
  EXPECT_EQ(composed("e\xCC\x81", room), "é");
  const std::string plain = "plain é";
  EXPECT_EQ(composed(plain, room).data(), plain.data());
}

// The lowest rank first, the leftmost of equal ones: over all pairs anew for each merge.
Tokens merged_plainly(const std::vector<BpeDefinition::Merge>& merges, Tokens tokens) {
  while (true) {
    std::size_t best = merges.size(), place = 0;
    for (std::size_t i = 0; i + 1 < tokens.size(); ++i)
      for (std::size_t rank = 0; rank < best; ++rank)
        if (merges[rank].left == tokens[i] && merges[rank].right == tokens[i + 1])
          best = rank, place = i;
    if (best == merges.size()) return tokens;
    tokens[place] = merges[best].merged;
    tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(place) + 1);
  }
}

BpeDefinition bytes_alone() {
  BpeDefinition definition;
  for (int byte = 0; byte < 256; ++byte) definition.pieces.emplace_back(1, static_cast<char>(byte));
  return definition;
}

// Random merges over three letters, so that words of every length merge much and in many orders.
TEST(BpeModel, ShortAndLongWordsMergeAsThePlainestLoopDoes) {
  Rng rng(3);
  for (int round = 0; round < 40; ++round) {
    BpeDefinition definition = bytes_alone();
    Tokens usable = {'a', 'b', 'c'};
    for (int i = 0; i < 20; ++i) {
      const std::uint32_t left = usable[rng.below(usable.size())];
      const std::uint32_t right = usable[rng.below(usable.size())];
      const bool known = std::ranges::any_of(definition.merges, [&](const auto& merge) {
        return merge.left == left && merge.right == right;
      });
      if (known) continue;
      const auto made = static_cast<std::uint32_t>(definition.pieces.size());
      definition.pieces.push_back(definition.pieces[left] + definition.pieces[right]);
      definition.merges.push_back({.left = left, .right = right, .merged = made});
      usable.push_back(made);
    }
    const auto merges = definition.merges;
    const auto model = BpeModel::make(std::move(definition));
    ASSERT_TRUE(model);
    BpeEncoder encoder(*model);
    for (int word = 0; word < 60; ++word) {
      std::string text;
      const std::size_t length = 1 + rng.below(word % 3 == 0 ? 200 : 40);
      for (std::size_t i = 0; i < length; ++i) text += static_cast<char>('a' + rng.below(3));
      Tokens bytes(text.begin(), text.end()), got;
      const Tokens expected = merged_plainly(merges, bytes);
      encoder.encode(text, got);
      EXPECT_EQ(got, expected) << text;
      got.clear();
      encoder.encode(text, got);
      EXPECT_EQ(got, expected) << "from the cache: " << text;
    }
  }
}

TEST(BpeModel, AWholeWordIsItsTokenWhereMergesAreIgnored) {
  BpeDefinition definition = bytes_alone();
  definition.pieces.emplace_back("abc");
  for (const bool ignore : {false, true}) {
    BpeDefinition one = definition;
    one.ignore_merges = ignore;
    BpeEncoder encoder(*BpeModel::make(std::move(one)));
    Tokens got;
    encoder.encode("abc", got);
    EXPECT_EQ(got, ignore ? (Tokens{256}) : (Tokens{'a', 'b', 'c'}));
  }
}

TEST(BpeModel, AByteWithoutATokenIsRefused) {
  BpeDefinition definition = bytes_alone();
  definition.pieces['x'].clear();
  const auto model = BpeModel::make(std::move(definition));
  ASSERT_FALSE(model);
  EXPECT_TRUE(model.error().what.starts_with("1 of the 256 bytes have no token"));
}

// A word of 200,000 letters, blanks or digits is one match, and takes no quadratic time.
TEST(WordSplitter, VeryLongRunsAreWithinBounds) {
  BpeEncoder words(*BpeModel::make([] {
    BpeDefinition definition = bytes_alone();
    definition.pieces.emplace_back("aa");
    definition.merges.push_back({.left = 'a', .right = 'a', .merged = 256});
    return definition;
  }()));
  for (const WordRule rule : {WordRule::kGpt2, WordRule::kLlama3, WordRule::kQwen2}) {
    WordSplitter splitter(std::make_shared<WordPattern>(rule));
    for (const std::string_view unit : {"a", " ", "\n", "=", "é", " \n", "漢"}) {
      std::string text;
      while (text.size() < 200'000) text += unit;
      splitter.begin(text);
      std::size_t bytes = 0;
      Tokens tokens;
      while (true) {
        const auto word = splitter.next();
        ASSERT_TRUE(word) << word.error().what;
        if (word->empty()) break;
        bytes += word->size();
        words.encode(*word, tokens);
      }
      EXPECT_EQ(bytes, text.size()) << unit;
    }
  }
}

// Of Unicode 15 (U+31350), 15.1 (U+2EBF0) and 16 (U+10D77, U+10D40).
TEST(WordSplitter, NewLettersAndNumbersAreSuch) {
  for (const WordRule rule : {WordRule::kGpt2, WordRule::kLlama3, WordRule::kQwen2}) {
    WordSplitter splitter(std::make_shared<WordPattern>(rule));
    for (const std::string_view word : {"a\U00010D77b", "\U00031350\U0002EBF0a"}) {
      splitter.begin(word);
      EXPECT_EQ(splitter.next().value(), word);
    }
    const std::string_view number = "\U00010D40";
    const std::string text = std::string(number) + "a";
    splitter.begin(text);
    EXPECT_EQ(splitter.next().value(), number);
  }
}

TEST(WordSplitter, OnlyPublishedPatternsAreKnown) {
  EXPECT_FALSE(find_word_rule("\\w+"));
  EXPECT_EQ(find_word_rule(
                R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"),
            WordRule::kGpt2);
}

TEST(AddedTokens, TheLongestIsFoundAndTakesBlanksAlong) {
  const AddedTokenFinder finder(
      {{.id = 1, .text = "<a>"},
       {.id = 2, .text = "<a><b>"},
       {.id = 3, .text = "<m>", .strips_left = true, .strips_right = true},
       {.id = 4, .text = "<s>", .special = true}});
  const auto found = [&](std::string_view text, std::size_t from, bool special) {
    const auto one = finder.find(text, from, special);
    return std::tuple(one.begin, one.end, one.id);
  };
  EXPECT_EQ(found("x<a><b>", 0, true), std::tuple(1U, 7U, 2U));
  EXPECT_EQ(found("x<a><", 0, true), std::tuple(1U, 4U, 1U));
  EXPECT_EQ(found("a \xE3\x80\x80<m>\n b", 0, true), std::tuple(1U, 10U, 3U));
  EXPECT_EQ(found("a  <m>", 2, true), std::tuple(2U, 6U, 3U));
  EXPECT_EQ(std::get<0>(found("<s>", 0, false)), 3U);
  EXPECT_EQ(found("<s>", 0, true), std::tuple(0U, 3U, 4U));
}

TEST(TextCut, IsBehindTheLastLineOrBetweenWords) {
  EXPECT_EQ(last_text_cut("one two\nthree four"), 8U) << "a line's end in the second half";
  EXPECT_EQ(last_text_cut("one two"), 3U);
  EXPECT_EQ(last_text_cut("one\n two"), 0U);
  EXPECT_EQ(last_text_cut("1 2 3"), 0U);
  EXPECT_EQ(last_text_cut("漢。\n字"), 7U);
  EXPECT_EQ(last_text_cut("a\n\xE3\x80\x80z"), 0U);
  EXPECT_EQ(last_text_cut("a\n<|endoftext|>"), 0U);
  EXPECT_EQ(last_text_cut(""), 0U);
}

}  // namespace
}  // namespace swarmline
