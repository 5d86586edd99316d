// The tokenizers and texts that scripts/make_tokenizer_fixtures.py made.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/store/files.h"
#include "engine/store/strict_json.h"
#include "engine/tokenizer/open_tokenizer.h"

namespace swarmline {

inline std::string tokenizer_fixture(const std::string& name) {
  return std::string(SWARMLINE_SOURCE_DIR) + "/tests/fixtures/tokenizer/" + name;
}

inline std::shared_ptr<const Tokenizer> open_fixture(const std::string& name) {
  auto tokenizer = open_tokenizer(tokenizer_fixture(name));
  EXPECT_TRUE(tokenizer) << tokenizer.error().what;
  return tokenizer ? *tokenizer : nullptr;
}

struct TokenizerCase {
  std::string text;
  std::vector<std::uint32_t> expected;
};

// Of the texts, those that PyPI's library encoded with this tokenizer.
inline std::vector<TokenizerCase> tokenizer_cases(const std::string& kind) {
  std::vector<TokenizerCase> cases;
  const auto text = read_text_file(tokenizer_fixture("cases.json"), 16 * kMiB);
  const auto root = parse_strict_json(*text, "cases.json");
  EXPECT_TRUE(root) << root.error().what;
  for (const auto& item : root->as_array()) {
    const auto& object = item.as_object();
    if (!object.contains(kind)) continue;
    TokenizerCase& made = cases.emplace_back();
    if (const auto* plain = object.if_contains("text")) {
      made.text = std::string(plain->as_string());
    } else {
      const std::string hex(object.at("hex").as_string());
      for (std::size_t i = 0; i < hex.size(); i += 2)
        made.text += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
    }
    for (const auto& token : object.at(kind).as_array())
      made.expected.push_back(token.to_number<std::uint32_t>());
  }
  return cases;
}

inline std::vector<std::uint32_t> encoded(const Tokenizer& tokenizer, std::string_view text,
                                          bool goes_on = false, EncodeOptions options = {}) {
  std::vector<std::uint32_t> tokens;
  const auto done = tokenizer.make_encoder(options)->encode(text, goes_on, tokens);
  EXPECT_TRUE(done) << done.error().what;
  return tokens;
}

}  // namespace swarmline
