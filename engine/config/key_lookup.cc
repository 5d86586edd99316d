// Sections and keys of a table of keys.
#include <algorithm>

#include "engine/config/schema.h"

namespace swarmline {

std::vector<std::string_view> section_names(std::span<const KeySpec> keys) {
  std::vector<std::string_view> names;
  for (const KeySpec& spec : keys)
    if (std::ranges::find(names, spec.section) == names.end()) names.push_back(spec.section);
  return names;
}

std::vector<std::string_view> key_names(std::span<const KeySpec> keys, std::string_view section) {
  std::vector<std::string_view> names;
  for (const KeySpec& spec : keys)
    if (spec.section == section) names.push_back(spec.key);
  return names;
}

const KeySpec* find_key(std::span<const KeySpec> keys, std::string_view section,
                        std::string_view key) {
  for (const KeySpec& spec : keys)
    if (spec.section == section && spec.key == key) return &spec;
  return nullptr;
}

}  // namespace swarmline
