// What must hold between keys, for values that are each in range. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/config/run_config.h"

namespace swarmline {

struct ConfigProblem {
  // "section.key" of those involved, the most likely culprit first: a loader blames the first that
  // an override set, else the first that the file set.
  std::vector<std::string_view> keys;
  std::string sentence;  // "found ..., expected ...; do ..."
};

// The first problem in a fixed order; nullopt: the config can run.
std::optional<ConfigProblem> find_problem(const RunConfig& config);
std::optional<ConfigProblem> find_problem(const PeerConfig& config);

}  // namespace swarmline
