// Text that other processes chose, made fit for logs and screens: no terminal escape, no line that
// somebody else seems to have written.
//   Thread: any. Bounds: what is asked for.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace swarmline {

// Printable ASCII alone.
bool is_printable(std::string_view text);

// At most `bytes_max` bytes of it. Control characters, and bytes that are no UTF-8, become \xNN;
// so do UTF-8's own control characters and what turns the direction of text.
std::string printable(std::string_view text, std::size_t bytes_max);
// The same for lines of one's own that may hold others' words: ends of lines and tabs stay.
std::string printable_lines(std::string_view text);

}  // namespace swarmline
