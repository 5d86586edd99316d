#include "sim/scenario/scenario_keys.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/nearest.h"

namespace swarmline {

ScenarioKeys::ScenarioKeys(std::vector<RawEntry> entries, std::string_view origin)
    : origin_(origin) {
  for (RawEntry& entry : entries)
    entries_.insert_or_assign(Name(entry.section, entry.key), std::move(entry));
}

bool ScenarioKeys::has(const std::string& section, const std::string& key) const {
  return entries_.contains({section, key});
}

std::uint32_t ScenarioKeys::line(const std::string& section, const std::string& key) const {
  const auto found = entries_.find({section, key});
  return found == entries_.end() ? 0 : found->second.line;
}

std::vector<std::string> ScenarioKeys::tables(const std::string& section) const {
  std::map<std::uint32_t, std::string> by_line;
  std::set<std::string> known;
  for (const auto& [name, entry] : entries_) {
    const std::size_t dot = name.second.find('.');
    if (name.first != section || dot == std::string::npos) continue;
    if (known.insert(name.second.substr(0, dot)).second)
      by_line.emplace(entry.line, name.second.substr(0, dot));
  }
  std::vector<std::string> names;
  for (const auto& [line, name] : by_line) names.push_back(name);
  return names;
}

const RawValue* ScenarioKeys::take(const std::string& section, const std::string& key) {
  asked_[section].insert(key);
  const auto found = entries_.find({section, key});
  if (found == entries_.end()) return nullptr;
  taken_.insert(found->first);
  return &found->second.value;
}

void ScenarioKeys::real(const std::string& section, const std::string& key, double& value,
                        double min, double max) {
  const RawValue* raw = take(section, key);
  if (raw == nullptr) return;
  double number = min - 1;
  if (const auto* real = std::get_if<double>(&raw->data)) number = *real;
  if (const auto* whole = std::get_if<std::int64_t>(&raw->data))
    number = static_cast<double>(*whole);
  if (number >= min && number <= max) {
    value = number;
  } else {
    mistake(section, key,
            fmt::format("found {}, expected a number from {} to {}", shown(*raw), min, max));
  }
}

void ScenarioKeys::count(const std::string& section, const std::string& key, std::uint64_t& value,
                         std::uint64_t min, std::uint64_t max) {
  const RawValue* raw = take(section, key);
  if (raw == nullptr) return;
  const auto* number = std::get_if<std::int64_t>(&raw->data);
  if (number != nullptr && std::cmp_greater_equal(*number, min) &&
      std::cmp_less_equal(*number, max)) {
    value = static_cast<std::uint64_t>(*number);
  } else {
    mistake(section, key,
            fmt::format("found {}, expected a whole number from {} to {}", shown(*raw), min, max));
  }
}

void ScenarioKeys::text(const std::string& section, const std::string& key, std::string& value) {
  const RawValue* raw = take(section, key);
  if (raw == nullptr) return;
  if (const auto* text = std::get_if<std::string>(&raw->data); text != nullptr && !text->empty()) {
    value = *text;
  } else {
    mistake(section, key, fmt::format("found {}, expected text in quotes", shown(*raw)));
  }
}

void ScenarioKeys::texts(const std::string& section, const std::string& key,
                         std::vector<std::string>& value) {
  const RawValue* raw = take(section, key);
  if (raw == nullptr) return;
  std::vector<std::string> texts;
  if (const auto* list = std::get_if<std::vector<RawValue>>(&raw->data))
    for (const RawValue& element : *list)
      if (const auto* text = std::get_if<std::string>(&element.data)) texts.push_back(*text);
  const auto* list = std::get_if<std::vector<RawValue>>(&raw->data);
  if (list != nullptr && !list->empty() && texts.size() == list->size()) {
    value = std::move(texts);
  } else {
    mistake(section, key, fmt::format("found {}, expected a list of texts", shown(*raw)));
  }
}

std::string ScenarioKeys::found(const std::string& section, const std::string& key) const {
  const auto entry = entries_.find({section, key});
  return entry == entries_.end() ? std::string() : shown(entry->second.value);
}

void ScenarioKeys::mistake(const std::string& section, const std::string& key,
                           const std::string& what) {
  const std::uint32_t at = line(section, key);
  const std::string place = at == 0 ? origin_ : fmt::format("{}:{}", origin_, at);
  const std::string name = key.empty()       ? "[" + section + "]"
                           : section.empty() ? key
                                             : section + "." + key;
  mistakes_.emplace(at, fmt::format("{}: {}: {}", place, name, what));
}

Result<void> ScenarioKeys::check(std::span<const std::string_view> sections) {
  for (const auto& [name, entry] : entries_) {
    const auto& [section, key] = name;
    if (key.empty() || taken_.contains(name) ||
        std::ranges::find(sections, std::string_view(section)) == sections.end())
      continue;
    const std::set<std::string>& asked = asked_[section];
    const std::vector<std::string_view> known(asked.begin(), asked.end());
    const std::string meant(nearest(key, known));
    mistake(section, key,
            "there is no such key" + (meant.empty() ? "" : "; did you mean " + meant + "?"));
  }
  if (mistakes_.empty()) return {};
  return fail(ErrorCode::kUserMistake, mistakes_.begin()->second);
}

}  // namespace swarmline
