// The one table of keys: loading, printing, the reference page and "did you mean" all read it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/config/run_config.h"

namespace swarmline {

// The config whose fields are meant; the table of a run's keys reads `run`, that of a peer's keys
// `peer`.
struct Roots {
  RunConfig* run = nullptr;
  PeerConfig* peer = nullptr;
};

using Field =
    std::variant<bool*, std::uint32_t*, std::uint64_t*, double*, std::string*,
                 std::vector<std::string>*, std::vector<std::uint32_t>*, NormKind*, ActivationKind*,
                 PositionKind*, BoundaryKind*, ComputeKind*, OptimizerKind*, OrderKind*, DType*,
                 NonFinite*, DataKind*, TokenFormat*, LearningSchedule*, MomentsKind*, StateMemory*,
                 Recompute*, TileChecksums*, WiringKind*, LogLevel*, ShadowsPerStage*>;

// Inclusive. For a list, of each element.
struct IntRange {
  std::int64_t min = 0;
  std::int64_t max = 0;
};
struct RealRange {
  double min = 0;
  double max = 0;
  bool min_open = false;  // min itself is out of range
  bool max_open = false;
};
using Range = std::variant<std::monostate, IntRange, RealRange>;

// `value` is the enumerator for enum fields, unused for text and for ShadowsPerStage.
struct Choice {
  std::string_view name;
  int value = 0;
};

// What TOML may hold besides the field's own type.
enum class Form : std::uint8_t {
  kPlain,
  kTextOrBool,      // enum field: true and false without quotes
  kListOrOne,       // list field: one element without brackets
  kNumberPerStage,  // list field: one number for every stage
};

struct KeyKind {
  Range range;
  std::span<const Choice> choices;
  Form form = Form::kPlain;
};

struct KeySpec {
  std::string_view section;
  std::string_view key;
  Field (*field)(Roots);
  KeyKind kind;
  std::string_view doc;      // what it means, in a sentence or two
  std::string_view example;  // TOML for "write for example"; empty: the default
  // Of where the coordinator is: no word of it in the config that peers get, unless it was set.
  bool only_if_set = false;
};

// A run's key of earlier versions that did nothing. Files may still hold it, above all those of run
// folders: it is passed over. `only`: the one value (TOML) that it could have; empty: any.
struct RetiredKey {
  std::string_view section;
  std::string_view key;
  std::string_view only;
  std::string_view doc;  // what is so instead
};

inline constexpr std::string_view kConfigVersionKey = "config_version";

std::span<const KeySpec> run_keys();  // without config_version, which is not a setting
std::span<const KeySpec> peer_keys();

std::span<const RetiredKey> retired_keys();
const RetiredKey* find_retired(std::string_view section, std::string_view key);

// Sections in the table's order, each once.
std::vector<std::string_view> section_names(std::span<const KeySpec> keys);
std::vector<std::string_view> key_names(std::span<const KeySpec> keys, std::string_view section);
const KeySpec* find_key(std::span<const KeySpec> keys, std::string_view section,
                        std::string_view key);

// "an integer from 1 to 4096", "\"skip\" or \"stop\"", ...
std::string expectation(const KeySpec& spec);

// A field's value in TOML.
std::string value_text(const KeySpec& spec, Roots roots);
// The same for a config that nobody touched.
std::string default_text(const KeySpec& spec);

}  // namespace swarmline
