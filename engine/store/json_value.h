// Reads one JSON text into a tree. For the program's own small texts (a run's status), which still
// come over a socket: bounded in depth, never throws.
//   Ownership: values. Thread: any. Errors: kCorrupt.
//   Bounds:    kJsonDepthMax levels (engine/store/strict_json.h); numbers are doubles.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace swarmline {

struct JsonMember;

struct JsonValue {
  enum class Kind : std::uint8_t { kNull, kBool, kNumber, kString, kArray, kObject };

  Kind kind = Kind::kNull;
  bool boolean = false;
  double number = 0;
  std::string string;
  std::vector<JsonValue> items;
  std::vector<JsonMember> members;

  // The member of that name; a null value when there is none or this is no object.
  const JsonValue& operator[](std::string_view name) const;
  bool is_number() const { return kind == Kind::kNumber; }
  double number_or(double other) const { return is_number() ? number : other; }
  // Negative, fractional and huge numbers are clamped into the range.
  std::uint64_t count() const;
};

struct JsonMember {
  std::string name;
  JsonValue value;
};

Result<JsonValue> parse_json(std::string_view text);

}  // namespace swarmline
