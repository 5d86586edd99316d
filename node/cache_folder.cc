#include "node/cache_folder.h"

#include <cstdlib>

namespace swarmline {

std::string cache_folder() {
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache == '/') return std::string(cache) + "/swarmline";
  const char* const home = std::getenv("HOME");
  if (home != nullptr && *home == '/') return std::string(home) + "/.cache/swarmline";
  return {};
}

std::string hashes_folder() {
  const std::string cache = cache_folder();
  return cache.empty() ? "" : cache + "/hashes";
}

}  // namespace swarmline
