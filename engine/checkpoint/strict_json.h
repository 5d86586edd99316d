// JSON from outside for this folder's parsers: bounded depth, no repeated keys, no comments,
// numbers exact (the nearest double; infinity or 0 beyond its range).
// Private to engine/checkpoint.
#pragma once

#include <string_view>

#include <boost/json/value.hpp>

#include "engine/base/result.h"

namespace swarmline {

inline constexpr std::size_t kJsonDepthMax = 16;

// kCorrupt; the sentence continues `where`, e.g. "the header of a.safetensors".
Result<boost::json::value> parse_strict_json(std::string_view text, std::string_view where);

}  // namespace swarmline
