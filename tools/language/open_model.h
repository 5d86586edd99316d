// A saved model, ready to read text.
//   Thread: blocking. Errors: those of ModelSource, TextTokens and LanguageModel.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "engine/huggingface/model_source.h"
#include "engine/model/language_model.h"
#include "tools/language/text_tokens.h"

namespace swarmline {

struct OpenModel {
  ModelSource source;
  TextTokens tokens;
  std::unique_ptr<LanguageModel> model;
};
// `name`: what ModelSource::open() takes; `tokenizer`: what TextTokens::of() takes.
Result<OpenModel> open_model(const std::string& name, const LanguageModelOptions& options,
                             const std::string& tokenizer = {});

}  // namespace swarmline
