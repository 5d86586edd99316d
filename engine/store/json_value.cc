#include "engine/store/json_value.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/store/strict_json.h"

namespace swarmline {
namespace {

namespace json = boost::json;

// False: a number beyond a double's range.
bool convert(const json::value& from, JsonValue& to) {
  if (const bool* truth = from.if_bool()) {
    to.kind = JsonValue::Kind::kBool;
    to.boolean = *truth;
  } else if (from.is_number()) {
    to.kind = JsonValue::Kind::kNumber;
    to.number = from.is_double()  ? from.get_double()
                : from.is_int64() ? static_cast<double>(from.get_int64())
                                  : static_cast<double>(from.get_uint64());
    return std::isfinite(to.number);
  } else if (const json::string* text = from.if_string()) {
    to.kind = JsonValue::Kind::kString;
    to.string.assign(text->data(), text->size());
  } else if (const json::array* items = from.if_array()) {
    to.kind = JsonValue::Kind::kArray;
    for (const json::value& item : *items)
      if (!convert(item, to.items.emplace_back())) return false;
  } else if (const json::object* members = from.if_object()) {
    to.kind = JsonValue::Kind::kObject;
    for (const auto& member : *members) {
      to.members.push_back({std::string(member.key()), {}});
      if (!convert(member.value(), to.members.back().value)) return false;
    }
  }
  return true;
}

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
  auto root = parse_strict_json(text, "the text");
  if (!root) return std::unexpected(std::move(root).error());
  JsonValue value;
  if (!convert(*root, value))
    return fail(ErrorCode::kCorrupt, "the text has a number that no double holds");
  return value;
}

}  // namespace swarmline
