#include "engine/net/link_guard.h"

#include <fmt/format.h>

namespace swarmline {

Result<void> check_shown_key(const LinkGuard& guard, const std::optional<KeyHash>& pinned,
                             const KeyHash& shown, const std::string& vouchers) {
  if (!pinned || shown == *pinned || guard.vouched(*pinned, shown, vouchers)) return {};
  return fail(
      ErrorCode::kCorrupt,
      fmt::format(
          "the key there is {}, expected {}: it is another run's, or somebody is in between, or "
          "the run's key was changed a while ago: then its new join string is needed",
          short_text(shown), short_text(*pinned)));
}

}  // namespace swarmline
