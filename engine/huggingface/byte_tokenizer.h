// What transformers reads text with for a model of bytes: a byte-level BPE without merges, so that
// token b is byte b, and the end of a document.
//   Thread: pure.
#pragma once

#include <cstdint>
#include <string>

namespace swarmline {

inline constexpr std::uint32_t kByteEndToken = 256;  // the token after the 256 bytes

std::string byte_tokenizer_json();         // tokenizer.json
std::string byte_tokenizer_config_json();  // tokenizer_config.json

}  // namespace swarmline
