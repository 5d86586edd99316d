// TOML text as a flat list of entries, before anybody knows which keys exist. Hides the TOML
// library.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"

namespace swarmline {

struct RawOther {
  std::string_view what;  // "a date", "a table", ...: nothing that a key takes
};

struct RawValue {
  std::variant<RawOther, bool, std::int64_t, double, std::string, std::vector<RawValue>> data;
};

// For sentences: 3, "abc", [1, 2], a date. Long ones are cut.
std::string shown(const RawValue& value);

struct RawEntry {
  std::string section;  // empty: above the first [section]
  std::string key;      // tables inside a section give "table.key"; empty: the section's own header
  RawValue value;
  std::uint32_t line = 0;  // 1-based
};

// Entries in the order of their lines. kUserMistake: "ORIGIN:LINE: not TOML: ...".
Result<std::vector<RawEntry>> read_toml(std::string_view text, std::string_view origin);

// The right-hand side of an override: TOML, or a bare word taken as text. kUserMistake: what is
// wrong, without place.
Result<RawValue> read_toml_value(std::string_view text);

// A basic string in quotes, escaped so that reading gives the same bytes (which must be UTF-8).
std::string toml_quoted(std::string_view text);

// The shortest decimal that reads back as the same bits, and as a float: 8.0, 3e-07, nan.
std::string real_text(double value);

}  // namespace swarmline
