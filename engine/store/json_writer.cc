#include "engine/store/json_writer.h"

#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"

namespace swarmline {

namespace {

// Length of the UTF-8 character that starts `text`; 0 when it does not start one (RFC 3629).
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xC2 && first <= 0xDF   ? 2
                             : (first & 0xF0U) == 0xE0        ? 3
                             : first >= 0xF0 && first <= 0xF4 ? 4
                                                              : 0;
  if (length == 0 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0U) != 0x80) return 0;
  }
  const unsigned second = byte(1);
  const bool overlong = (first == 0xE0 && second < 0xA0) || (first == 0xF0 && second < 0x90);
  const bool surrogate = first == 0xED && second >= 0xA0;
  const bool beyond = first == 0xF4 && second >= 0x90;
  return overlong || surrogate || beyond ? 0 : length;
}

void append_escaped(std::string& out, std::string_view text) {
  out.push_back('"');
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const char c = text.front();
    if (length == 0) {
      out += "\xEF\xBF\xBD";
    } else if (length > 1) {
      out += text.substr(0, length);
    } else if (c == '"' || c == '\\') {
      out.push_back('\\');
      out.push_back(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out.push_back(c);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  out.push_back('"');
}

}  // namespace

JsonWriter& JsonWriter::key(std::string_view name) {
  SWARMLINE_CHECK(!levels_.empty() && levels_.back().kind == '{' && !after_key_);
  before_value();
  append_escaped(text_, name);
  text_ += indent_ > 0 ? ": " : ":";
  after_key_ = true;
  return *this;
}

JsonWriter& JsonWriter::value(std::string_view text) {
  SWARMLINE_CHECK(levels_.empty() || levels_.back().kind == '[' || after_key_);
  before_value();
  append_escaped(text_, text);
  return *this;
}

JsonWriter& JsonWriter::value(double number) {
  if (!std::isfinite(number)) return raw("null");
  if (number == 0 && std::signbit(number)) return raw("-0.0");  // "-0" is read as an integer
  return raw(fmt::format("{}", number));
}

std::string JsonWriter::take() {
  SWARMLINE_CHECK(levels_.empty() && !after_key_ && !text_.empty());
  return std::exchange(text_, {});
}

JsonWriter& JsonWriter::open(char bracket) {
  raw(std::string_view(&bracket, 1));
  levels_.push_back(Level{.kind = bracket});
  return *this;
}

JsonWriter& JsonWriter::close(char opened, char bracket) {
  SWARMLINE_CHECK(!levels_.empty() && levels_.back().kind == opened && !after_key_);
  const bool empty = levels_.back().empty;
  levels_.pop_back();
  if (!empty) new_line();
  text_.push_back(bracket);
  return *this;
}

JsonWriter& JsonWriter::raw(std::string_view token) {
  SWARMLINE_CHECK(levels_.empty() || levels_.back().kind == '[' || after_key_);
  before_value();
  text_ += token;
  return *this;
}

void JsonWriter::before_value() {
  if (std::exchange(after_key_, false) || levels_.empty()) return;
  if (!levels_.back().empty) text_.push_back(',');
  levels_.back().empty = false;
  new_line();
}

void JsonWriter::new_line() {
  if (indent_ == 0) return;
  text_.push_back('\n');
  text_.append(levels_.size() * static_cast<std::size_t>(indent_), ' ');
}

}  // namespace swarmline
