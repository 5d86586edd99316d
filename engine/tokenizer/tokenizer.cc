#include "engine/tokenizer/tokenizer.h"

namespace swarmline {

std::string Tokenizer::decode(std::span<const std::uint32_t> tokens, bool with_special) const {
  std::string bytes;
  bool begins = true;
  for (const std::uint32_t token : tokens) {
    bytes += decode_next(token, begins, with_special);
    begins &= is_special(token);
  }
  return bytes;
}

}  // namespace swarmline
