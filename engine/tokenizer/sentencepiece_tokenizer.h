// SentencePiece's models, by its own library.
//   Errors: of open: kUserMistake with the path. The rest: tokenizer.h.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/tokenizer/tokenizer.h"

namespace swarmline {

Result<std::unique_ptr<Tokenizer>> make_sentencepiece_tokenizer(std::string_view model,
                                                                const std::string& path);

}  // namespace swarmline
