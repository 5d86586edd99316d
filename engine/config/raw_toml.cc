#include "engine/config/raw_toml.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include <fmt/format.h>

// The library's parser is compiled in here rather than taken from its shared object: sanitizers and
// the fuzzer see it, and it reports errors without exceptions.
#undef TOML_SHARED_LIB
#undef TOML_HEADER_ONLY
#define TOML_HEADER_ONLY 1
#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
#define TOML_ENABLE_WINDOWS_COMPAT 0
#include <toml++/toml.h>

namespace swarmline {
namespace {

constexpr std::size_t kShownBytesMax = 60;

RawValue to_raw(const toml::node& node) {
  if (const auto* value = node.as_boolean()) return {value->get()};
  if (const auto* value = node.as_integer()) return {value->get()};
  if (const auto* value = node.as_floating_point()) return {value->get()};
  if (const auto* value = node.as_string()) return {value->get()};
  if (const auto* array = node.as_array()) {
    std::vector<RawValue> values;
    for (const toml::node& element : *array) values.push_back(to_raw(element));
    return {std::move(values)};
  }
  if (node.is_table()) return {RawOther{"a table"}};
  return {RawOther{"a date or time"}};
}

void flatten(const toml::table& table, const std::string& section, const std::string& prefix,
             std::vector<RawEntry>& entries) {
  for (const auto& [key, node] : table) {
    const std::string name = prefix + std::string(key.str());
    if (const toml::table* inner = node.as_table()) {
      flatten(*inner, section, name + ".", entries);
    } else {
      entries.push_back({section, name, to_raw(node), key.source().begin.line});
    }
  }
}

// The library's sentences may span lines and end with a full stop; ours are one clause.
std::string one_clause(std::string_view description) {
  std::string text(description);
  std::ranges::replace(text, '\n', ' ');
  while (!text.empty() && (text.back() == '.' || text.back() == ' ')) text.pop_back();
  return text;
}

}  // namespace

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      out += fmt::format("\\u{:04X}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string real_text(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

std::string shown(const RawValue& value) {
  struct Show {
    std::string operator()(const RawOther& other) const { return std::string(other.what); }
    std::string operator()(bool flag) const { return flag ? "true" : "false"; }
    std::string operator()(std::int64_t number) const { return fmt::format("{}", number); }
    std::string operator()(double number) const { return real_text(number); }
    std::string operator()(const std::string& text) const { return quoted(text); }
    std::string operator()(const std::vector<RawValue>& values) const {
      std::string list;
      for (const RawValue& element : values) {
        if (list.size() > kShownBytesMax) break;
        list += (list.empty() ? "" : ", ") + shown(element);
      }
      return "[" + list + "]";
    }
  };
  std::string text = std::visit(Show{}, value.data);
  if (text.size() <= kShownBytesMax) return text;
  std::size_t end = kShownBytesMax;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U)
    --end;  // whole code points
  return text.substr(0, end) + "...";
}

Result<std::vector<RawEntry>> read_toml(std::string_view text, std::string_view origin) {
  const toml::parse_result parsed = toml::parse(text, origin);
  if (!parsed) {
    return fail(
        ErrorCode::kUserMistake,
        fmt::format("{}:{}: not TOML: {}; correct this line (see https://toml.io)", origin,
                    parsed.error().source().begin.line, one_clause(parsed.error().description())));
  }
  std::vector<RawEntry> entries;
  for (const auto& [key, node] : parsed.table()) {
    const std::string name(key.str());
    const std::uint32_t line = key.source().begin.line;
    if (const toml::table* section = node.as_table()) {
      entries.push_back({name, "", {RawOther{"a section"}}, line});
      flatten(*section, name, "", entries);
    } else {
      entries.push_back({"", name, to_raw(node), line});
    }
  }
  // The library's tables are sorted by name. A section's own entry has an empty key, so it comes
  // first.
  std::ranges::sort(entries, {}, [](const RawEntry& entry) {
    return std::tie(entry.line, entry.section, entry.key);
  });
  return entries;
}

Result<RawValue> read_toml_value(std::string_view text) {
  if (text.empty())
    return fail(ErrorCode::kUserMistake, "found nothing after \"=\", expected a value");
  const bool one_line = text.find_first_of("\n\r") == std::string_view::npos;
  const toml::parse_result parsed = toml::parse(fmt::format("v = {}", text));
  if (parsed && one_line && parsed.table().size() == 1) return to_raw(*parsed.table().get("v"));
  if (std::string_view("\"'[{").contains(text.front())) {
    return fail(
        ErrorCode::kUserMistake,
        fmt::format("found {}, expected a value in TOML syntax; close what it opens, and mind the "
                    "shell's own quotes",
                    shown({std::string(text)})));
  }
  const toml::parse_result word = toml::parse(fmt::format("v = {}", quoted(text)));
  if (!word) return fail(ErrorCode::kUserMistake, "found bytes that are not UTF-8, expected text");
  return to_raw(*word.table().get("v"));
}

}  // namespace swarmline
