#include <limits>

#include <fmt/format.h>

#include "engine/config/load.h"
#include "engine/config/raw_toml.h"
#include "engine/config/schema.h"

namespace swarmline {
namespace {

template <typename T, typename Show>
std::string list_text(const std::vector<T>& values, Show show) {
  std::string text;
  for (const T& value : values) text += (text.empty() ? "" : ", ") + show(value);
  return "[" + text + "]";
}

struct ValueText {
  const KeySpec& spec;

  std::string shown(std::string_view name) const {
    const bool is_flag = spec.kind.form == Form::kTextOrBool && (name == "true" || name == "false");
    return is_flag ? std::string(name) : toml_quoted(name);
  }
  std::string operator()(const bool* value) const { return *value ? "true" : "false"; }
  std::string operator()(const std::uint32_t* value) const { return fmt::format("{}", *value); }
  std::string operator()(const std::uint64_t* value) const { return fmt::format("{}", *value); }
  std::string operator()(const double* value) const { return real_text(*value); }
  std::string operator()(const std::string* value) const { return toml_quoted(*value); }
  std::string operator()(const ShadowsPerStage* value) const {
    return value->automatic ? toml_quoted("auto") : fmt::format("{}", value->count);
  }
  std::string operator()(const std::vector<std::string>* values) const {
    return list_text(*values, [](const std::string& value) { return toml_quoted(value); });
  }
  std::string operator()(const std::vector<std::uint32_t>* values) const {
    return list_text(*values, [](std::uint32_t value) { return fmt::format("{}", value); });
  }
  std::string operator()(const std::vector<double>* values) const {
    return list_text(*values, real_text);
  }
  template <typename Enum>
  std::string operator()(const Enum* value) const {
    for (const Choice& choice : spec.kind.choices)
      if (choice.value == static_cast<int>(*value)) return shown(choice.name);
    return toml_quoted("?");
  }
};

std::string choices_text(std::span<const Choice> choices) {
  std::string text;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    if (i > 0) text += i + 1 == choices.size() ? " or " : ", ";
    text += toml_quoted(choices[i].name);
  }
  return text;
}

std::string integer_text(const IntRange& range) {
  if (range.max == std::numeric_limits<std::int64_t>::max())
    return fmt::format("an integer of at least {}", range.min);
  return fmt::format("an integer from {} to {}", range.min, range.max);
}

std::string number_text(const RealRange& range) {
  const std::string low = fmt::format("{} {}", range.min_open ? "above" : "of at least", range.min);
  if (range.max == std::numeric_limits<double>::max()) return "a finite number " + low;
  if (!range.min_open && !range.max_open)
    return fmt::format("a number from {} to {}", range.min, range.max);
  return fmt::format("a number {} and {} {}", low, range.max_open ? "below" : "at most", range.max);
}

struct Expectation {
  const KeyKind& kind;

  std::string letters() const {
    return kind.suffixes.step > 0 ? ", or text with K, M, G or T behind it" : "";
  }
  std::string integers() const { return integer_text(std::get<IntRange>(kind.range)) + letters(); }
  std::string operator()(const bool*) const { return "true or false"; }
  std::string operator()(const std::uint32_t*) const { return integers(); }
  std::string operator()(const std::uint64_t*) const { return integers(); }
  std::string operator()(const double*) const {
    return number_text(std::get<RealRange>(kind.range)) + letters();
  }
  std::string operator()(const std::string*) const {
    return kind.choices.empty() ? "text in quotes" : choices_text(kind.choices);
  }
  std::string operator()(const std::vector<std::string>*) const {
    return "text in quotes, or a list of texts";
  }
  std::string operator()(const std::vector<std::uint32_t>*) const {
    const std::string element = integers();
    return kind.form == Form::kNumberPerStage ? element + ", or a list with one for each stage"
                                              : "a list with, for each stage, " + element;
  }
  std::string operator()(const std::vector<double>*) const {
    return "a list with, for each entry, " + number_text(std::get<RealRange>(kind.range));
  }
  std::string operator()(const ShadowsPerStage*) const {
    return choices_text(kind.choices) + " or " + integers();
  }
  template <typename Enum>
  std::string operator()(const Enum*) const {
    if (kind.form == Form::kTextOrBool) return "true, false or \"auto\"";
    return choices_text(kind.choices);
  }
};

std::string print(std::uint32_t version, std::span<const KeySpec> keys, Roots roots) {
  std::string text = fmt::format("{} = {}\n", kConfigVersionKey, version);
  std::string_view section;
  for (const KeySpec& spec : keys) {
    const std::string value = value_text(spec, roots);
    if (spec.only_if_set && value == default_text(spec)) continue;
    if (spec.section != section) text += fmt::format("\n[{}]\n", spec.section);
    section = spec.section;
    text += fmt::format("{} = {}\n", spec.key, value);
  }
  return text;
}

}  // namespace

std::string value_text(const KeySpec& spec, Roots roots) {
  return std::visit(ValueText{spec}, spec.field(roots));
}

std::string default_text(const KeySpec& spec) {
  RunConfig run;
  PeerConfig peer;
  return value_text(spec, {&run, &peer});
}

std::string expectation(const KeySpec& spec) {
  RunConfig run;
  PeerConfig peer;
  return std::visit(Expectation{spec.kind}, spec.field({&run, &peer}));
}

std::string to_toml(const RunConfig& config) {
  RunConfig copy = config;  // fields are reached through pointers to non-const
  return print(config.config_version, run_keys(), {.run = &copy});
}

std::string to_toml(const PeerConfig& config) {
  PeerConfig copy = config;
  return print(RunConfig{}.config_version, peer_keys(), {.peer = &copy});
}

}  // namespace swarmline
