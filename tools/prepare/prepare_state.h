// How far an unfinished preparation has come, in its folder: the files that are whole, and where in
// the inputs the next one begins.
//   Errors:  kUserMistake with the path: it is damaged. Thread: pure.
//   Bounds:  kPreparedManifestBytesMax of text.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/data/prepared_manifest.h"
#include "tools/prepare/text_blocks.h"

namespace swarmline {

inline constexpr std::string_view kPrepareStateName = "unfinished.json";

struct PrepareState {
  PreparedManifest made;  // so far; made_of says of what
  InputPlace next;
  bool operator==(const PrepareState&) const = default;
};

std::string to_json(const PrepareState& state);
Result<PrepareState> parse_prepare_state(std::string_view text, const std::string& path);

}  // namespace swarmline
