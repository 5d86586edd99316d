// Reads the keys of a scenario's own sections; remembers the first mistake by line. Thread: one.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/config/raw_toml.h"

namespace swarmline {

class ScenarioKeys {
 public:
  ScenarioKeys(std::vector<RawEntry> entries, std::string_view origin);

  bool has(const std::string& section, const std::string& key) const;
  std::uint32_t line(const std::string& section, const std::string& key) const;
  // Names of the tables [section.NAME], in the order of their lines.
  std::vector<std::string> tables(const std::string& section) const;

  // Each leaves `value` alone when the key is absent or not as expected.
  void real(const std::string& section, const std::string& key, double& value, double min,
            double max);
  void count(const std::string& section, const std::string& key, std::uint64_t& value,
             std::uint64_t min, std::uint64_t max);
  void text(const std::string& section, const std::string& key, std::string& value);
  // A list of texts.
  void texts(const std::string& section, const std::string& key, std::vector<std::string>& value);
  // The key's value as TOML: what a sentence says was found. Empty when absent.
  std::string found(const std::string& section, const std::string& key) const;

  void mistake(const std::string& section, const std::string& key, const std::string& what);
  // The first mistake, or a key of `sections` that nobody has read.
  Result<void> check(std::span<const std::string_view> sections);

 private:
  using Name = std::pair<std::string, std::string>;
  const RawValue* take(const std::string& section, const std::string& key);

  std::string origin_;
  std::map<Name, RawEntry> entries_;
  std::map<std::string, std::set<std::string>> asked_;  // section -> keys
  std::set<Name> taken_;
  std::map<std::uint32_t, std::string> mistakes_;  // by line
};

}  // namespace swarmline
