#include "engine/config/assign.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <optional>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "base/nearest.h"
#include "base/unit_suffix.h"

namespace swarmline {
namespace {

template <typename T>
constexpr bool is_integer_field =
    std::is_same_v<T, std::uint32_t> || std::is_same_v<T, std::uint64_t>;

bool is_text_without_controls(const std::string& text) {
  return std::ranges::none_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x20; });
}

// Each converts a value to the field's type, or gives nothing when it is of another type or out of
// range.
template <typename T>
std::optional<T> convert(const KeySpec& spec, const RawValue& value);

template <>
std::optional<bool> convert(const KeySpec&, const RawValue& value) {
  const bool* flag = std::get_if<bool>(&value.data);
  return flag ? std::optional(*flag) : std::nullopt;
}

// "16G" of a key that may be written so, in what its field counts.
std::optional<double> suffixed(const KeySpec& spec, const RawValue& value) {
  const auto* text = std::get_if<std::string>(&value.data);
  if (!text || spec.kind.suffixes.step == 0) return std::nullopt;
  const auto number = number_with_suffix(*text, spec.kind.suffixes.step);
  const bool has_letter = !text->empty() && !std::isdigit(static_cast<unsigned char>(text->back()));
  if (!number || !has_letter) return number;
  return *number / spec.kind.suffixes.unit;
}

// A whole number that the integer of a config file could have been.
std::optional<std::int64_t> integer(const KeySpec& spec, const RawValue& value) {
  constexpr double kTooLarge = 9.2e18;
  if (const auto* number = std::get_if<std::int64_t>(&value.data)) return *number;
  const auto number = suffixed(spec, value);
  if (!number || *number >= kTooLarge || std::floor(*number) != *number) return std::nullopt;
  return static_cast<std::int64_t>(*number);
}

template <typename T>
  requires is_integer_field<T>
std::optional<T> convert_integer(const KeySpec& spec, const RawValue& value) {
  const auto number = integer(spec, value);
  const IntRange& range = std::get<IntRange>(spec.kind.range);
  if (!number || *number < range.min || *number > range.max) return std::nullopt;
  return static_cast<T>(*number);
}

template <>
std::optional<std::uint32_t> convert(const KeySpec& spec, const RawValue& value) {
  return convert_integer<std::uint32_t>(spec, value);
}
template <>
std::optional<std::uint64_t> convert(const KeySpec& spec, const RawValue& value) {
  return convert_integer<std::uint64_t>(spec, value);
}

template <>
std::optional<double> convert(const KeySpec& spec, const RawValue& value) {
  double number = 0;
  if (const auto* real = std::get_if<double>(&value.data)) {
    number = *real;
  } else if (const auto* integer = std::get_if<std::int64_t>(&value.data)) {
    number = static_cast<double>(*integer);
  } else if (const auto with_unit = suffixed(spec, value)) {
    number = *with_unit;
  } else {
    return std::nullopt;
  }
  const RealRange& range = std::get<RealRange>(spec.kind.range);
  const bool above = range.min_open ? number > range.min : number >= range.min;
  const bool below = range.max_open ? number < range.max : number <= range.max;
  return above && below ? std::optional(number) : std::nullopt;  // NaN is neither
}

const Choice* find_choice(const KeySpec& spec, const RawValue& value) {
  std::string_view name;
  if (const auto* text = std::get_if<std::string>(&value.data)) {
    name = *text;
  } else if (const bool* flag = std::get_if<bool>(&value.data);
             flag && spec.kind.form == Form::kTextOrBool) {
    name = *flag ? "true" : "false";
  } else {
    return nullptr;
  }
  const auto found = std::ranges::find(spec.kind.choices, name, &Choice::name);
  return found == spec.kind.choices.end() ? nullptr : &*found;
}

template <typename T>
  requires std::is_enum_v<T>
std::optional<T> convert_enum(const KeySpec& spec, const RawValue& value) {
  const Choice* choice = find_choice(spec, value);
  return choice ? std::optional(static_cast<T>(choice->value)) : std::nullopt;
}

template <>
std::optional<ShadowsPerStage> convert(const KeySpec& spec, const RawValue& value) {
  if (find_choice(spec, value)) return kShadowsAuto;
  const auto number = convert_integer<std::uint32_t>(spec, value);
  return number ? std::optional(ShadowsPerStage{.count = *number}) : std::nullopt;
}

template <>
std::optional<std::string> convert(const KeySpec& spec, const RawValue& value) {
  if (!spec.kind.choices.empty()) {
    const Choice* choice = find_choice(spec, value);
    return choice ? std::optional<std::string>(choice->name) : std::nullopt;
  }
  const auto* text = std::get_if<std::string>(&value.data);
  return text && is_text_without_controls(*text) ? std::optional(*text) : std::nullopt;
}

template <typename T>
std::optional<std::vector<T>> convert_list(const KeySpec& spec, const RawValue& value) {
  const auto* list = std::get_if<std::vector<RawValue>>(&value.data);
  std::vector<T> converted;
  if (!list) {
    if (spec.kind.form != Form::kListOrOne && spec.kind.form != Form::kNumberPerStage)
      return std::nullopt;
    const std::optional<T> one = convert<T>(spec, value);
    if (one) converted.push_back(*one);
    return one ? std::optional(converted) : std::nullopt;
  }
  for (const RawValue& element : *list) {
    const std::optional<T> one = convert<T>(spec, element);
    if (!one) return std::nullopt;
    converted.push_back(*one);
  }
  return converted;
}

template <typename T>
std::optional<T> convert_any(const KeySpec& spec, const RawValue& value) {
  if constexpr (std::is_enum_v<T>) {
    return convert_enum<T>(spec, value);
  } else if constexpr (std::is_same_v<T, std::vector<std::string>> ||
                       std::is_same_v<T, std::vector<std::uint32_t>> ||
                       std::is_same_v<T, std::vector<double>>) {
    return convert_list<typename T::value_type>(spec, value);
  } else {
    return convert<T>(spec, value);
  }
}

std::string advice(const KeySpec& spec, const RawValue& value) {
  if (const auto* text = std::get_if<std::string>(&value.data)) {
    std::vector<std::string_view> names;
    for (const Choice& choice : spec.kind.choices) names.push_back(choice.name);
    if (*text == "int8" && std::ranges::find(names, "lin8") != names.end())
      return "int8 is called lin8 now";
    if (const std::string_view name = nearest(*text, names); !name.empty())
      return fmt::format("did you mean {}?", toml_quoted(name));
  }
  const std::string example = spec.example.empty() ? default_text(spec) : std::string(spec.example);
  return fmt::format("write for example {} = {}", spec.key, example);
}

}  // namespace

Result<void> assign(const KeySpec& spec, const RawValue& value, Roots roots) {
  const bool assigned = std::visit(
      [&]<typename T>(T* field) {
        std::optional<T> converted = convert_any<T>(spec, value);
        if (converted) *field = std::move(*converted);
        return converted.has_value();
      },
      spec.field(roots));
  if (assigned) return {};
  return fail(ErrorCode::kUserMistake, fmt::format("found {}, expected {}; {}", shown(value),
                                                   expectation(spec), advice(spec, value)));
}

}  // namespace swarmline
