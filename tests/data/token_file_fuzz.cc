// view_token_file() on any bytes: no crash, and what it accepts lies within the file.

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "engine/data/token_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const swarmline::BytesView file(reinterpret_cast<const std::byte*>(data), size);
  for (const swarmline::TokenFormat format :
       {swarmline::TokenFormat::kAuto, swarmline::TokenFormat::kLlmC,
        swarmline::TokenFormat::kUint16, swarmline::TokenFormat::kUint32}) {
    for (const char* path : {"a.bin", "a.txt"}) {
      const auto view = swarmline::view_token_file(file, format, path);
      if (!view) continue;
      if (view->count() * view->token_bytes + view->header_bytes != size) std::abort();
      if (view->tokens.data() != file.data() + view->header_bytes) std::abort();
    }
  }
  return 0;
}
