// Numbers for people. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace swarmline {

std::string with_commas(std::uint64_t number);                    // "1,638,400"
std::string human_bytes(double bytes);                            // "64.0 KiB"
std::string human_count(double count);                            // "1.2 M"
std::string human_seconds(double seconds);                        // "2m 41s"
std::string layers_text(std::uint64_t first, std::uint64_t end);  // "layers 2-3", "layer 2"
// As a shell takes it: quoted where it has blanks or signs.
std::string shell_word(std::string_view word);
// A line of eight heights (or ASCII marks) over the last `width` values, scaled to their range.
std::string sparkline(std::span<const double> values, std::size_t width, bool utf8);
std::string progress_bar(double fraction, std::size_t width, bool utf8);
// Columns a text takes on a terminal: code points, escape sequences not counted.
std::size_t display_columns(std::string_view text);
// Broken between words into lines of that many columns; a longer word is cut.
std::vector<std::string> wrap_columns(std::string_view text, std::size_t columns);
// Cut to that many columns, escape sequences kept.
std::string cut_columns(std::string_view text, std::size_t columns);

}  // namespace swarmline
