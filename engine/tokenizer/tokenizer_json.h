// A tokenizer.json (Hugging Face `tokenizers`) that is byte-level BPE: everything that says which
// tokens a text becomes.
//   What:   models of type BPE over bytes; pre-tokenizers ByteLevel (GPT-2's rule) or Split by a
//           known pattern and then ByteLevel (Llama 3, Qwen 2 and 3); normalizers none and NFC. All
//           else is refused by its name.
//   Errors: kUserMistake: one sentence, beginning with `where`. Thread: pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/tokenizer/added_tokens.h"
#include "engine/tokenizer/bpe_model.h"
#include "engine/tokenizer/word_splitter.h"

namespace swarmline {

struct TokenizerJson {
  BpeDefinition bpe;
  WordRule rule = WordRule::kGpt2;
  bool adds_prefix_space = false;  // before each text that does not begin with a blank
  bool composes = false;           // the text is normalized to NFC
  std::vector<AddedToken> added;
  // Texts of tokens that are not written by bytes: added ones, and others.
  std::vector<std::pair<std::uint32_t, std::string>> names;
};

Result<TokenizerJson> parse_tokenizer_json(std::string_view text, std::string_view where);

// The end of a document by a tokenizer_config.json; empty: it does not say.
std::string document_end_of(std::string_view tokenizer_config);

}  // namespace swarmline
