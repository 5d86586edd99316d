// Any bytes as a run's status: values or a sentence, and what was read writes to the same values.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "pipeline/protocol/run_status.h"

using namespace swarmline;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto status = parse_status({reinterpret_cast<const char*>(data), size});
  if (!status) {
    SWARMLINE_CHECK(!status.error().what.empty());
    return 0;
  }
  const std::string text = to_json(*status);
  const auto again = parse_status(text);
  SWARMLINE_CHECK_MSG(again.has_value(), text);
  SWARMLINE_CHECK_MSG(to_json(*again) == text, text);
  return 0;
}
