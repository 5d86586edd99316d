#include "node/process_log.h"

#include <string_view>

#include "engine/store/files.h"

namespace swarmline {

std::string tail_of(const std::string& log) {
  auto text = read_text_file(log, kLogBytesMax);
  if (!text) return {};
  std::size_t at = text->size();
  for (std::size_t lines = 0; at > 0 && lines <= kTailLines; --at) {
    if ((*text)[at - 1] == '\n' && ++lines > kTailLines) break;
  }
  return text->substr(at);
}

std::string last_word(const std::string& log) {
  static constexpr std::string_view kName = "swarmline: ";
  const auto text = read_text_file(log, kLogBytesMax);
  if (!text) return {};
  const std::size_t line = text->rfind("\n" + std::string(kName));
  const std::size_t begin = line == std::string::npos ? 0 : line + 1;
  if (!std::string_view(*text).substr(begin).starts_with(kName)) return {};
  const std::size_t sentence = begin + kName.size();
  return text->substr(sentence, text->find('\n', sentence) - sentence);
}

}  // namespace swarmline
