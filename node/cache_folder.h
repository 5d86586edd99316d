// Where this user's processes keep what can be made again: $XDG_CACHE_HOME/swarmline, else
// $HOME/.cache/swarmline. Thread: any. Errors: none; empty: there is no such place.
#pragma once

#include <string>

namespace swarmline {

std::string cache_folder();
// Where FileHashes remembers; empty: nowhere.
std::string hashes_folder();

}  // namespace swarmline
