// A line of JSONL of any bytes: no crash, and what is found is UTF-8.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "engine/tokenizer/utf8.h"
#include "tools/prepare/json_line.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace swarmline;
  const std::string_view line(reinterpret_cast<const char*>(data), size);
  const auto text = text_of_json_line(line, "text");
  if (text && is_utf8(line) && !is_utf8(*text)) std::abort();
  return 0;
}
