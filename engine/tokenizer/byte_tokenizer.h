// The tokenizer that needs no file: bytes are tokens 0..255, and 256 ends a document.
#pragma once

#include <memory>
#include <string_view>

#include "engine/tokenizer/tokenizer.h"

namespace swarmline {

inline constexpr std::string_view kByteTokenizerName = "bytes";

std::unique_ptr<Tokenizer> make_byte_tokenizer();

}  // namespace swarmline
