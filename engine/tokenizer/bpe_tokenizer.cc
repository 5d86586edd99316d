#include "engine/tokenizer/bpe_tokenizer.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include <fmt/format.h>

#include "engine/tokenizer/composed_text.h"
#include "engine/tokenizer/utf8.h"

namespace swarmline {

namespace {

// What ends documents in well-known vocabularies.
constexpr std::array<std::string_view, 6> kUsualEnds = {
    "<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eos|>", "[EOS]"};

// Stands behind a line's end, where the document goes on with something else than white space.
constexpr std::string_view kSomethingElse = "x";

bool is_alphanumeric(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0;
}

}  // namespace

// One thread's: text into tokens.
class BpeTextEncoder final : public TokenEncoder {
 public:
  BpeTextEncoder(const BpeTokenizer& tokenizer, const EncodeOptions& options)
      : tokenizer_(tokenizer),
        special_too_(!options.special_as_text),
        splitter_(tokenizer.pattern_),
        words_(tokenizer.model_) {}

  Result<void> encode(std::string_view text, bool goes_on,
                      std::vector<std::uint32_t>& tokens) override {
    if (!is_utf8(text)) {
      replaced_.clear();
      append_as_utf8(text, replaced_);
      text = replaced_;
    }
    return walk(tokenizer_.in_text_, text, goes_on, tokens,
                [&](std::string_view part, bool part_goes_on) {
                  return encode_part(part, part_goes_on, tokens);
                });
  }

 private:
  // Calls body() with what lies between the finder's tokens, which it appends.
  template <typename Body>
  Result<void> walk(const AddedTokenFinder& finder, std::string_view text, bool goes_on,
                    std::vector<std::uint32_t>& tokens, Body body) {
    if (finder.empty()) return body(text, goes_on);
    for (std::size_t at = 0; at < text.size();) {
      const AddedTokenFinder::Found found = finder.find(text, at, special_too_);
      if (found.begin > at)
        SWARMLINE_TRY(
            body(text.substr(at, found.begin - at), goes_on && found.begin == text.size()));
      if (found.begin == text.size()) break;
      tokens.push_back(found.id);
      at = found.end;
    }
    return {};
  }

  Result<void> encode_part(std::string_view part, bool goes_on,
                           std::vector<std::uint32_t>& tokens) {
    if (tokenizer_.composes_) part = composed(part, composed_);
    return walk(tokenizer_.in_normalized_, part, goes_on, tokens,
                [&](std::string_view text, bool text_goes_on) {
                  return encode_text(text, text_goes_on, tokens);
                });
  }

  Result<void> encode_text(std::string_view text, bool goes_on,
                           std::vector<std::uint32_t>& tokens) {
    const bool prefix = tokenizer_.adds_prefix_space_ && !text.starts_with(' ');
    const bool sentinel = goes_on && text.ends_with('\n');
    if (prefix || sentinel) {
      extended_.clear();
      if (prefix) extended_ += ' ';
      extended_ += text;
      if (sentinel) extended_ += kSomethingElse;
      text = extended_;
    }
    const char* end = text.data() + text.size() - (sentinel ? kSomethingElse.size() : 0);
    splitter_.begin(text);
    while (true) {
      const Result<std::string_view> word = splitter_.next();
      if (!word) return std::unexpected(word.error());
      if (word->empty() || word->data() == end) return {};
      words_.encode(*word, tokens);
    }
  }

  const BpeTokenizer& tokenizer_;
  bool special_too_;
  WordSplitter splitter_;
  BpeEncoder words_;
  std::string replaced_, composed_, extended_;  // room
};

TextCuts BpeTokenizer::find_cuts(const std::vector<AddedToken>& added) const {
  if (adds_prefix_space_) return TextCuts::kNowhere;
  for (const AddedToken& token : added) {
    // It might lie across a cut, end the text before one, or take white space along from behind it.
    const bool crosses =
        std::ranges::any_of(token.text, [](char c) { return c == ' ' || c == '\n' || c == '\t'; });
    const bool begins = is_alphanumeric(token.text.front()) ||
                        static_cast<unsigned char>(token.text.front()) >= 0x80;
    const bool reaches =
        token.strips_left || (token.strips_right && is_alphanumeric(token.text.back()));
    if (crosses || begins || reaches) return TextCuts::kNowhere;
  }
  return TextCuts::kBetweenWords;
}

Result<std::unique_ptr<BpeTokenizer>> BpeTokenizer::make(TokenizerJson json, std::string_view where,
                                                         const std::string& document_end) {
  std::unique_ptr<BpeTokenizer> made(new BpeTokenizer());
  made->rule_ = json.rule;
  made->adds_prefix_space_ = json.adds_prefix_space;
  made->composes_ = json.composes;
  made->pattern_ = std::make_shared<WordPattern>(json.rule);
  made->cuts_ = made->find_cuts(json.added);
  auto model = BpeModel::make(std::move(json.bpe));
  if (!model) return fail(model.error().code, fmt::format("{}: {}", where, model.error().what));
  made->model_ = std::move(*model);
  for (auto& [number, text] : json.names) made->names_[number] = {.text = std::move(text)};
  std::vector<AddedToken> in_text, in_normalized;
  std::string room;
  for (AddedToken& token : json.added) {
    made->names_[token.id].special = token.special;
    if (token.in_normalized && made->composes_)
      token.text = std::string(composed(token.text, room));
    (token.in_normalized ? in_normalized : in_text).push_back(std::move(token));
  }
  made->in_text_ = AddedTokenFinder(std::move(in_text));
  made->in_normalized_ = AddedTokenFinder(std::move(in_normalized));
  if (!document_end.empty()) made->document_end_ = made->find(document_end);
  for (const std::string_view usual : kUsualEnds)
    if (!made->document_end_) made->document_end_ = made->find(usual);
  return made;
}

std::string BpeTokenizer::description() const {
  return fmt::format("byte-level BPE, {} tokens, words as {}'s{}", vocabulary(), to_string(rule_),
                     composes_ ? ", NFC" : "");
}

std::unique_ptr<TokenEncoder> BpeTokenizer::make_encoder(const EncodeOptions& options) const {
  return std::make_unique<BpeTextEncoder>(*this, options);
}

// Added ones by their names, others by the bytes that they stand for.
std::optional<std::uint32_t> BpeTokenizer::find(std::string_view text) const {
  std::optional<std::uint32_t> found;
  for (const auto& [number, name] : names_)
    if (name.text == text && (!found || number < *found)) found = number;
  for (std::uint32_t token = 0; !found && token < vocabulary(); ++token)
    if (!text.empty() && model_->piece(token) == text) found = token;
  return found;
}

bool BpeTokenizer::is_special(std::uint32_t token) const {
  const auto name = names_.find(token);
  return name != names_.end() && name->second.special;
}

std::string BpeTokenizer::decode_next(std::uint32_t token, bool /*begins*/,
                                      bool with_special) const {
  if (token >= vocabulary()) return {};
  const auto name = names_.find(token);
  if (name == names_.end()) return std::string(model_->piece(token));
  return with_special || !name->second.special ? name->second.text : std::string();
}

}  // namespace swarmline
