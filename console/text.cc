#include "console/text.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include <fmt/format.h>

#include "console/words.h"

namespace swarmline {
namespace {

constexpr std::array<std::string_view, 8> kHeights = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
constexpr std::array<std::string_view, 8> kAsciiHeights = {"_", ".", ".", "-", "-", "=", "^", "#"};

std::string scaled(double value, double unit, std::span<const std::string_view> names) {
  std::size_t i = 0;
  while (std::abs(value) >= unit && i + 1 < names.size()) {
    value /= unit;
    ++i;
  }
  return i == 0 ? fmt::format("{:.0f} {}", value, names[0])
                : fmt::format("{:.1f} {}", value, names[i]);
}

// Length of the escape sequence or character that starts at `at`, and whether it takes a column.
std::pair<std::size_t, bool> unit_at(std::string_view text, std::size_t at) {
  std::size_t end = at + 1;
  if (text[at] == '\x1b') {
    while (end < text.size() && !(text[end] >= '@' && text[end] <= '~' && text[end] != '[')) ++end;
    return {std::min(end + 1, text.size()) - at, false};
  }
  while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
  return {end - at, true};
}

}  // namespace

std::string with_commas(std::uint64_t number) {
  std::string digits = std::to_string(number);
  for (std::size_t i = digits.size(); i > 3; i -= 3) digits.insert(i - 3, ",");
  return digits;
}

std::string human_bytes(double bytes) {
  static constexpr std::array<std::string_view, 5> names = {"B", "KiB", "MiB", "GiB", "TiB"};
  return scaled(bytes, 1024, names);
}

std::string human_count(double count) {
  static constexpr std::array<std::string_view, 5> names = {"", "K", "M", "G", "T"};
  std::string text = scaled(count, 1000, names);
  while (text.ends_with(' ')) text.pop_back();
  return text;
}

std::string human_seconds(double seconds) {
  const auto whole = static_cast<std::uint64_t>(std::max(0.0, std::round(seconds)));
  if (whole < 60) return fmt::format("{}s", whole);
  if (whole < 3600) return fmt::format("{}m {:02}s", whole / 60, whole % 60);
  if (whole < 100 * 3600) return fmt::format("{}h {:02}m", whole / 3600, whole / 60 % 60);
  return fmt::format("{}d {:02}h", whole / 86400, whole / 3600 % 24);
}

std::string sparkline(std::span<const double> values, std::size_t width, bool utf8) {
  if (values.size() > width) values = values.last(width);
  if (values.empty()) return {};
  const auto [low, high] = std::ranges::minmax(values);
  const double range = high - low;
  std::string line;
  for (const double value : values) {
    const double part = range > 0 ? (value - low) / range : 0;
    const auto level = static_cast<std::size_t>(std::clamp(part * 7.999, 0.0, 7.0));
    line += utf8 ? kHeights[level] : kAsciiHeights[level];
  }
  return line;
}

std::string progress_bar(double fraction, std::size_t width, bool utf8) {
  const auto full =
      static_cast<std::size_t>(std::clamp(fraction, 0.0, 1.0) * static_cast<double>(width) + 1e-9);
  std::string bar;
  for (std::size_t i = 0; i < width; ++i) {
    if (utf8) {
      bar += i < full ? "━" : "─";
    } else {
      bar += i < full ? '#' : '-';
    }
  }
  return bar;
}

std::size_t display_columns(std::string_view text) {
  std::size_t columns = 0;
  for (std::size_t at = 0; at < text.size();) {
    const auto [length, visible] = unit_at(text, at);
    columns += visible ? 1 : 0;
    at += length;
  }
  return columns;
}

std::string layers_text(std::uint64_t first, std::uint64_t end) {
  return end > first + 1 ? fmt::format("layers {}-{}", first, end - 1)
                         : fmt::format("layer {}", first);
}

std::string shell_word(std::string_view word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=@%+,";
  if (!word.empty() && word.find_first_not_of(kPlain) == word.npos) return std::string(word);
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::vector<std::string> wrap_columns(std::string_view text, std::size_t columns) {
  std::vector<std::string> lines;
  for (std::string_view word = next_word(text); !word.empty(); word = next_word(text)) {
    const std::string cut = cut_columns(word, columns);
    const std::size_t room = lines.empty() ? 0 : columns - display_columns(lines.back());
    if (!lines.empty() && display_columns(cut) + 1 <= room) {
      lines.back() += " " + cut;
    } else {
      lines.push_back(cut);
    }
  }
  return lines;
}

std::string cut_columns(std::string_view text, std::size_t columns) {
  std::string out;
  std::size_t used = 0;
  for (std::size_t at = 0; at < text.size();) {
    const auto [length, visible] = unit_at(text, at);
    if (!visible || used < columns) out += text.substr(at, length);
    used += visible ? 1 : 0;
    at += length;
  }
  return out;
}

}  // namespace swarmline
