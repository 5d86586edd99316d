// A tokenizer from the file that a user names.
//   Errors: kUserMistake, one sentence with the file's name; kIo.
//   Bounds: kTokenizerFileBytesMax. Thread: any.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "engine/tokenizer/tokenizer.h"

namespace swarmline {

// "bytes", a *.model of SentencePiece, a tokenizer.json, or a folder with one of these files (and
// tokenizer_config.json, which names the end of a document).
Result<std::shared_ptr<const Tokenizer>> open_tokenizer(const std::string& name);

// Whether a folder has one of these files.
bool holds_tokenizer(const std::string& folder);

}  // namespace swarmline
