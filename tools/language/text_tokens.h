// The tokens that a saved model reads and writes, for text.
//   Ownership: plain values; the tokenizer is shared. Thread: immutable.
//   Errors:    kUserMistake: nothing says what the model's tokens stand for, or what says it does
//              not fit the model; those of Tokenizer.
//   Bounds:    kTokenizerFileBytesMax.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/config/run_config.h"
#include "engine/huggingface/hf_export.h"
#include "engine/huggingface/model_source.h"
#include "engine/tokenizer/tokenizer.h"

namespace swarmline {

class TextTokens {
 public:
  // `tokenizer`: what open_tokenizer() takes. Empty: what lies beside the model: a folder's
  // tokenizer, or the data of the checkpoint's run.
  static Result<TextTokens> of(const ModelSource& source, const std::string& tokenizer = {});

  Result<std::vector<std::int32_t>> encode(std::string_view text) const;
  // What goes beside an exported model, so that transformers reads the same tokens.
  Result<std::vector<HfExportOptions::File>> files() const;
  // What the token adds to a text; bytes, not always whole characters. `begins`: no token has come
  // before it.
  std::string text_of(std::int32_t token, bool begins) const;
  // The token that ends a document, and the one that comes before the first.
  std::optional<std::int32_t> document_end() const { return end_; }
  std::optional<std::int32_t> document_begin() const { return begin_ ? begin_ : end_; }

 private:
  explicit TextTokens(std::shared_ptr<const Tokenizer> tokenizer);
  static Result<TextTokens> open(const std::string& name);
  static Result<TextTokens> of_run(const ModelSource& source, const RunConfig& run);

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::optional<std::int32_t> end_, begin_;
};

// Of the run that a checkpoint lies in the folder of; none where it lies elsewhere.
std::optional<RunConfig> config_of_run(const ModelSource& source);

}  // namespace swarmline
