#include "cli/json_value.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include <fmt/format.h>

namespace swarmline {
namespace {

void append_utf8(std::string& out, std::uint32_t code) {
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xC0 | (code >> 6));
    out += static_cast<char>(0x80 | (code & 0x3F));
  } else {
    out += static_cast<char>(0xE0 | (code >> 12));
    out += static_cast<char>(0x80 | ((code >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (code & 0x3F));
  }
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<JsonValue> parse() {
    JsonValue value;
    if (!read(value, 0) || (skip(), at_ != text_.size())) {
      return fail(ErrorCode::kCorrupt, fmt::format("not JSON at byte {}", at_));
    }
    return value;
  }

 private:
  void skip() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t')) {
      ++at_;
    }
  }
  bool take(char c) {
    skip();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool word(std::string_view expected) {
    if (!text_.substr(at_).starts_with(expected)) return false;
    at_ += expected.size();
    return true;
  }

  bool read(JsonValue& value, int depth) {
    skip();
    if (at_ >= text_.size() || depth > kStatusDepthMax) return false;
    switch (text_[at_]) {
      case '{':
        return read_object(value, depth);
      case '[':
        return read_array(value, depth);
      case '"':
        value.kind = JsonValue::Kind::kString;
        return read_string(value.string);
      case 't':
      case 'f':
        value.kind = JsonValue::Kind::kBool;
        value.boolean = text_[at_] == 't';
        return word(value.boolean ? "true" : "false");
      case 'n':
        return word("null");
      default:
        return read_number(value);
    }
  }

  bool read_object(JsonValue& value, int depth) {
    value.kind = JsonValue::Kind::kObject;
    ++at_;
    if (take('}')) return true;
    do {
      skip();
      JsonMember member;
      if (!read_string(member.name) || !take(':') || !read(member.value, depth + 1)) return false;
      value.members.push_back(std::move(member));
    } while (take(','));
    return take('}');
  }

  bool read_array(JsonValue& value, int depth) {
    value.kind = JsonValue::Kind::kArray;
    ++at_;
    if (take(']')) return true;
    do {
      if (!read(value.items.emplace_back(), depth + 1)) return false;
    } while (take(','));
    return take(']');
  }

  bool read_number(JsonValue& value) {
    value.kind = JsonValue::Kind::kNumber;
    const char* first = text_.data() + at_;
    if (*first != '-' && (*first < '0' || *first > '9')) return false;
    const auto [end, error] = std::from_chars(first, text_.data() + text_.size(), value.number);
    if (error != std::errc() || !std::isfinite(value.number)) return false;
    at_ += static_cast<std::size_t>(end - first);
    return true;
  }

  std::optional<std::uint32_t> read_hex4() {
    std::uint32_t code = 0;
    if (at_ + 4 > text_.size()) return std::nullopt;
    const char* first = text_.data() + at_;
    if (std::from_chars(first, first + 4, code, 16).ptr != first + 4) return std::nullopt;
    at_ += 4;
    return code;
  }

  bool read_escape(std::string& out) {
    if (at_ >= text_.size()) return false;
    switch (const char c = text_[at_++]; c) {
      case '"':
      case '\\':
      case '/':
        out += c;
        return true;
      case 'b':
        out += '\b';
        return true;
      case 'f':
        out += '\f';
        return true;
      case 'n':
        out += '\n';
        return true;
      case 'r':
        out += '\r';
        return true;
      case 't':
        out += '\t';
        return true;
      case 'u':
        if (const auto code = read_hex4()) return append_utf8(out, *code), true;
        return false;
      default:
        return false;
    }
  }

  bool read_string(std::string& out) {
    if (at_ >= text_.size() || text_[at_] != '"') return false;
    for (++at_; at_ < text_.size();) {
      const char c = text_[at_++];
      if (c == '"') return true;
      if (static_cast<unsigned char>(c) < 0x20) return false;
      if (c != '\\') {
        out += c;
      } else if (!read_escape(out)) {
        return false;
      }
    }
    return false;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

const JsonValue& JsonValue::operator[](std::string_view name) const {
  static const JsonValue nothing;
  for (const auto& [key, value] : members) {
    if (key == name) return value;
  }
  return nothing;
}

std::uint64_t JsonValue::count() const {
  constexpr double exact_max = 0x1.0p53;
  if (!is_number() || number < 0) return 0;
  return static_cast<std::uint64_t>(std::min(number, exact_max));
}

Result<JsonValue> parse_json(std::string_view text) {
  return Parser(text).parse();
}

}  // namespace swarmline
