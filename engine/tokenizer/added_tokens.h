// Tokens that are found in a text before it is taken apart into words, as "<|endoftext|>".
//   What:    at each place the longest that begins there, from left to right, as `tokenizers` finds
//            them; `strips_*` take the white space beside them along.
//   Thread:  immutable.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace swarmline {

struct AddedToken {
  std::uint32_t id = 0;
  std::string text;  // not empty
  bool special = false;
  bool strips_left = false, strips_right = false;
  bool in_normalized = false;  // looked for in the normalized text, else in the text as it is
};

class AddedTokenFinder {
 public:
  AddedTokenFinder() = default;
  explicit AddedTokenFinder(std::vector<AddedToken> tokens);

  bool empty() const { return tokens_.empty(); }
  struct Found {
    std::size_t begin = 0, end = 0;
    std::uint32_t id = 0;
  };
  // The first one in text[from, ...); nothing earlier than `from` is taken along.
  // No match: `begin` is the text's size.
  Found find(std::string_view text, std::size_t from, bool special_too) const;

 private:
  const AddedToken* match_at(std::string_view text, std::size_t at) const;

  std::vector<AddedToken> tokens_;  // the longest first
  std::array<bool, 256> begins_{};  // first bytes
};

}  // namespace swarmline
