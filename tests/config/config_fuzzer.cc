// Any bytes as a config: a value or a sentence, and what was accepted prints to the same config.
// The first line is taken as an override as well, the way a command line gives it.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "engine/config/load.h"

using namespace swarmline;

namespace {

template <typename Config>
void check(const Result<Config>& config,
           Result<Config> (*from_text)(std::string_view, std::string_view, Overrides)) {
  if (!config) {
    SWARMLINE_CHECK(config.error().code == ErrorCode::kUserMistake);
    SWARMLINE_CHECK(!config.error().what.empty());
    return;
  }
  const std::string text = to_toml(*config);
  const Result<Config> again = from_text(text, "printed", {});
  SWARMLINE_CHECK_MSG(again.has_value(), again ? "" : again.error().what);
  SWARMLINE_CHECK_MSG(*again == *config, text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check(run_config_from_text(text, "fuzz", {}), &run_config_from_text);
  check(peer_config_from_text(text, "fuzz", {}), &peer_config_from_text);
  const std::vector<std::string> overrides = {std::string(text.substr(0, text.find('\n')))};
  constexpr std::string_view kLeast = "config_version = 1\n[data]\nfiles = [\"x\"]\n";
  check(run_config_from_text(kLeast, "fuzz", overrides), &run_config_from_text);
  check(load_peer_config("", overrides), &peer_config_from_text);
  return 0;
}
