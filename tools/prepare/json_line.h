// One line of JSONL: the text that an object has under a key. Thread: pure.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace swarmline {

// kUserMistake, without a place: what was found instead.
Result<std::string> text_of_json_line(std::string_view line, std::string_view key);

}  // namespace swarmline
