// parse_prepared() and parse_prepare_state() on any bytes: no crash, and what is accepted is
// written and read back as the same.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "tools/prepare/prepare_state.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace swarmline;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto manifest = parse_prepared(text, "p")) {
    const auto again = parse_prepared(to_json(*manifest), "p");
    if (!again || *again != *manifest) std::abort();
  }
  if (const auto state = parse_prepare_state(text, "p")) {
    if (!parse_prepare_state(to_json(*state), "p")) std::abort();
  }
  return 0;
}
