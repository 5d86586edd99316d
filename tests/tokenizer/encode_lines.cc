// For compare_tokenizers.py: encodes texts, hexadecimal and one a line, and prints their tokens.
//   usage: encode_lines TOKENIZER < texts
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "engine/tokenizer/open_tokenizer.h"

int main(int argc, char** argv) {
  using namespace swarmline;
  if (argc != 2) return 2;
  const auto tokenizer = open_tokenizer(argv[1]);
  if (!tokenizer) {
    std::fprintf(stderr, "%s\n", tokenizer.error().what.c_str());
    return 2;
  }
  const auto encoder = (*tokenizer)->make_encoder({});
  std::string line, text;
  std::vector<std::uint32_t> tokens;
  while (std::getline(std::cin, line)) {
    text.clear();
    tokens.clear();
    for (std::size_t i = 0; i + 1 < line.size(); i += 2) {
      std::uint8_t byte = 0;
      std::from_chars(line.data() + i, line.data() + i + 2, byte, 16);
      text += static_cast<char>(byte);
    }
    if (!encoder->encode(text, false, tokens)) return 1;
    for (const std::uint32_t token : tokens) std::printf("%u ", token);
    std::printf("\n");
  }
  return 0;
}
