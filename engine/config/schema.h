// The one table of keys: loading, printing, the reference page and "did you mean" all read it.
#pragma once

#include <cstdint>
#include <limits>
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
                 std::vector<std::string>*, std::vector<std::uint32_t>*, std::vector<double>*,
                 NormKind*, ActivationKind*, PositionKind*, BoundaryKind*, ComputeKind*, Precision*,
                 StreamKind*, OptimizerKind*, OrderKind*, DType*, NonFinite*, DataKind*,
                 TokenFormat*, LearningSchedule*, MomentsKind*, StateMemory*, Recompute*,
                 TileChecksums*, NoticeSource*, WiringKind*, LogLevel*, Transport*, Islands*,
                 FabricChoice*, ShadowsPerStage*>;

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

// A number may be text with a unit's letter, too: "16G" (base/unit_suffix.h).
struct Suffixes {
  double step = 0;  // what K stands for; 0: there are none
  double unit = 1;  // what the field's number counts: 1048576 where it counts MiB
};

struct KeyKind {
  Range range;
  std::span<const Choice> choices;
  Form form = Form::kPlain;
  Suffixes suffixes = {};
};

struct KeySpec {
  std::string_view section;
  std::string_view key;
  Field (*field)(Roots);
  KeyKind kind;
  std::string_view doc;      // what it means, in a sentence or two
  std::string_view example;  // TOML for "write for example"; empty: the default
  // No word of it in the config that is printed and that peers get, unless it was set.
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

// How the tables of keys say which values a field takes.
namespace key_kinds {

inline constexpr std::int64_t kAny =
    std::numeric_limits<std::int64_t>::max();  // TOML's largest integer
inline constexpr double kHuge = std::numeric_limits<double>::max();
inline constexpr double kDaySeconds = 86400;

constexpr KeyKind flag() {
  return {};
}
constexpr KeyKind text() {
  return {};
}
constexpr KeyKind texts() {
  return {.form = Form::kListOrOne};
}
constexpr KeyKind ints(std::int64_t min, std::int64_t max) {
  return {.range = IntRange{min, max}};
}
constexpr KeyKind ints_per_stage(std::int64_t min, std::int64_t max) {
  return {.range = IntRange{min, max}, .form = Form::kNumberPerStage};
}
constexpr KeyKind reals(double min, double max) {
  return {.range = RealRange{min, max}};
}
constexpr KeyKind weights() {
  return {.range = RealRange{.min = 0, .max = 1e9, .min_open = true}};
}
constexpr KeyKind from_zero() {
  return {.range = RealRange{0, kHuge}};
}
constexpr KeyKind above_zero_to(double max) {
  return {.range = RealRange{.min = 0, .max = max, .min_open = true}};
}
constexpr KeyKind bytes() {
  return {.range = IntRange{0, kAny}, .suffixes = {.step = 1024}};
}
constexpr KeyKind mebibytes(std::int64_t min, std::int64_t max) {
  return {.range = IntRange{min, max}, .suffixes = {.step = 1024, .unit = 1024 * 1024}};
}
constexpr KeyKind bits_per_second() {
  return {.range = RealRange{0, kHuge}, .suffixes = {.step = 1000}};
}
constexpr KeyKind share() {
  return reals(0, 1);
}
constexpr KeyKind share_below_one() {
  return {.range = RealRange{.min = 0, .max = 1, .max_open = true}};
}
constexpr KeyKind one_of(std::span<const Choice> choices) {
  return {.choices = choices};
}
constexpr KeyKind one_of_or_bool(std::span<const Choice> choices) {
  return {.choices = choices, .form = Form::kTextOrBool};
}
constexpr KeyKind one_of_or_ints(std::span<const Choice> choices, std::int64_t min,
                                 std::int64_t max) {
  return {.range = IntRange{min, max}, .choices = choices};
}

}  // namespace key_kinds

}  // namespace swarmline
