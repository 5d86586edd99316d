// Lets a model go on with a text, token by token.
//   What:   reads the prompt, then picks tokens until the document ends or max_tokens are there. A
//           text beyond the model's context is gone on with from its last half context.
//   Thread: blocking. Errors: those of LanguageModel; kUserMistake: an empty prompt, and nothing
//           that a document begins with.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/model/language_model.h"
#include "engine/model/sampling.h"
#include "tools/language/text_tokens.h"

namespace swarmline {

struct GenerateOptions {
  SamplingOptions sampling;
  std::uint64_t max_tokens = 200;
  bool past_the_end = false;  // goes on behind the end of a document
};

// `give`: the bytes of each token, as it is there. Returns the tokens, without the prompt's.
Result<std::vector<std::int32_t>> generate(LanguageModel& model, const TextTokens& tokens,
                                           const std::string& prompt,
                                           const GenerateOptions& options,
                                           const std::function<void(std::string_view)>& give);

}  // namespace swarmline
