// The characters by which byte-level BPE writes bytes in its files: a printable one for each.
//   Source: GPT-2's encoder (bytes_to_unicode). Thread: pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace swarmline {

// The bytes that a piece of the vocabulary stands for; nothing where it has other characters.
std::optional<std::string> bytes_of_piece(std::string_view piece);

}  // namespace swarmline
