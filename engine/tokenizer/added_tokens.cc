#include "engine/tokenizer/added_tokens.h"

#include <algorithm>

#include "base/check.h"
#include "engine/tokenizer/utf8.h"

namespace swarmline {

namespace {

std::size_t leftmost_space_before(std::string_view text, std::size_t at, std::size_t least) {
  while (at > least) {
    std::size_t begin = at - 1;
    while (begin > least && (static_cast<unsigned char>(text[begin]) & 0xC0U) == 0x80U) --begin;
    if (!is_white_space(first_code_point(text.substr(begin)).value)) break;
    at = begin;
  }
  return at;
}

std::size_t behind_space(std::string_view text, std::size_t at) {
  while (at < text.size()) {
    const CodePoint next = first_code_point(text.substr(at));
    if (!is_white_space(next.value)) break;
    at += next.bytes;
  }
  return at;
}

}  // namespace

AddedTokenFinder::AddedTokenFinder(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::ranges::sort(tokens_, std::ranges::greater{},
                    [](const AddedToken& token) { return token.text.size(); });
  for (const AddedToken& token : tokens_) {
    SWARMLINE_CHECK(!token.text.empty());
    begins_[static_cast<unsigned char>(token.text.front())] = true;
  }
}

const AddedToken* AddedTokenFinder::match_at(std::string_view text, std::size_t at) const {
  for (const AddedToken& token : tokens_)
    if (text.substr(at).starts_with(token.text)) return &token;
  return nullptr;
}

AddedTokenFinder::Found AddedTokenFinder::find(std::string_view text, std::size_t from,
                                               bool special_too) const {
  std::size_t at = from;
  while (at < text.size()) {
    if (!begins_[static_cast<unsigned char>(text[at])]) {
      ++at;
      continue;
    }
    const AddedToken* token = match_at(text, at);
    if (!token) {
      ++at;
      continue;
    }
    const std::size_t end = at + token->text.size();
    if (token->special && !special_too) {  // it is passed over as a whole
      at = end;
      continue;
    }
    return {.begin = token->strips_left ? leftmost_space_before(text, at, from) : at,
            .end = token->strips_right ? behind_space(text, end) : end,
            .id = token->id};
  }
  return {.begin = text.size(), .end = text.size()};
}

}  // namespace swarmline
