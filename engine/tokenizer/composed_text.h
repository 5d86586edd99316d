// Unicode's normalization form NFC (utf8proc). Thread: pure.
#pragma once

#include <string>
#include <string_view>

namespace swarmline {

// Of valid UTF-8: the text itself where it is composed as it is, else what `room` holds afterwards.
std::string_view composed(std::string_view text, std::string& room);

}  // namespace swarmline
