// parse_manifest() on any bytes: no crash, and what it accepts is written and read back the same.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "engine/checkpoint/manifest.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto manifest = swarmline::parse_manifest(
      std::string_view(reinterpret_cast<const char*>(data), size), "fuzz");
  if (!manifest) return 0;
  const std::string text = swarmline::to_json(*manifest);
  const auto again = swarmline::parse_manifest(text, "again");
  if (!again || swarmline::to_json(*again) != text) std::abort();
  return 0;
}
