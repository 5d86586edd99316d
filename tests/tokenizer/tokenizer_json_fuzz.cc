// parse_tokenizer_json() on any bytes: no crash, and what it accepts encodes text.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "engine/tokenizer/bpe_tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace swarmline;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  auto json = parse_tokenizer_json(text, "a tokenizer");
  if (!json) return 0;
  const auto made = BpeTokenizer::make(std::move(*json), "a tokenizer", "");
  if (!made) return 0;
  std::vector<std::uint32_t> tokens;
  for (const std::string_view line : {"Hello <|endoftext|> it's 12\n", "\xFF e\xCC\x81"}) {
    if (!(*made)->make_encoder({})->encode(line, false, tokens)) std::abort();
  }
  for (const std::uint32_t token : tokens)
    if (token >= (*made)->vocabulary()) std::abort();
  (void)(*made)->decode(tokens, true);
  return 0;
}
