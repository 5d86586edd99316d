#include "node/protection_news.h"

#include <utility>

namespace swarmline {

// The sentence names the newest checkpoint, too: that another one was written is no news.
std::optional<std::string> ProtectionNews::of(const RunStatus& status) {
  if (status.state != "training") return std::nullopt;
  const bool unprotected = !status.unprotected.empty();
  if (std::exchange(unprotected_, unprotected) == unprotected) return std::nullopt;
  return unprotected ? "unprotected: " + status.unprotected
                     : "protected again: no stage's state is held by one peer alone";
}

}  // namespace swarmline
