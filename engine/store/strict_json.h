// JSON from outside: bounded depth, no repeated keys, no comments, numbers exact (the nearest
// double; infinity or 0 beyond its range).
//   Thread: any. Errors: kCorrupt; the sentence begins with `where`, e.g. "the header of
//   a.safetensors". Bounds: kJsonDepthMax levels; the caller bounds the text.
#pragma once

#include <string_view>

#include <boost/json/value.hpp>

#include "base/result.h"

namespace swarmline {

inline constexpr std::size_t kJsonDepthMax = 16;

Result<boost::json::value> parse_strict_json(std::string_view text, std::string_view where);

}  // namespace swarmline
