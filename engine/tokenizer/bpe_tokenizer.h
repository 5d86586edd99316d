// Byte-level BPE of a tokenizer.json: added tokens, NFC, words, merges.
//   Errors: of make_bpe_tokenizer(): kUserMistake, beginning with `where`. The rest: tokenizer.h.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/tokenizer/added_tokens.h"
#include "engine/tokenizer/bpe_model.h"
#include "engine/tokenizer/tokenizer.h"
#include "engine/tokenizer/tokenizer_json.h"
#include "engine/tokenizer/word_splitter.h"

namespace swarmline {

class BpeTokenizer final : public Tokenizer {
 public:
  // `document_end`: the text of the token that ends documents; empty: by its usual names.
  static Result<std::unique_ptr<BpeTokenizer>> make(TokenizerJson json, std::string_view where,
                                                    const std::string& document_end);

  std::string kind() const override { return "bpe"; }
  std::string description() const override;
  std::uint32_t vocabulary() const override { return model_->vocabulary(); }
  TextCuts cuts() const override { return cuts_; }
  std::unique_ptr<TokenEncoder> make_encoder(const EncodeOptions& options) const override;
  std::optional<std::uint32_t> find(std::string_view text) const override;
  bool is_special(std::uint32_t token) const override;
  std::string decode_next(std::uint32_t token, bool begins, bool with_special) const override;

 private:
  friend class BpeTextEncoder;
  BpeTokenizer() = default;
  TextCuts find_cuts(const std::vector<AddedToken>& added) const;

  WordRule rule_ = WordRule::kGpt2;
  bool adds_prefix_space_ = false;
  bool composes_ = false;
  std::shared_ptr<const WordPattern> pattern_;
  std::shared_ptr<const BpeModel> model_;
  AddedTokenFinder in_text_, in_normalized_;
  struct Name {
    std::string text;
    bool special = false;
  };
  std::map<std::uint32_t, Name> names_;  // of tokens that are no bytes
  TextCuts cuts_ = TextCuts::kNowhere;
};

}  // namespace swarmline
