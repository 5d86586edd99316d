#include "engine/config/load.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/limits.h"
#include "base/nearest.h"
#include "engine/config/assign.h"
#include "engine/config/raw_toml.h"
#include "engine/config/schema.h"
#include "engine/config/validate.h"

namespace swarmline {
namespace {

constexpr std::string_view kOverridePlace = "--set";
constexpr std::size_t kListedNamesMax = 24;

std::string join(std::span<const std::string_view> names) {
  std::string text;
  for (std::size_t i = 0; i < names.size() && i < kListedNamesMax; ++i)
    text += fmt::format("{}{}", i == 0 ? "" : ", ", names[i]);
  return text;
}

std::unexpected<Error> mistake(std::string_view place, std::string_view key,
                               std::string_view sentence) {
  return fail(ErrorCode::kUserMistake, fmt::format("{}: {}: {}", place, key, sentence));
}

std::string path_of(std::string_view section, std::string_view key) {
  if (section.empty()) return std::string(key);
  return key.empty() ? fmt::format("[{}]", section) : fmt::format("{}.{}", section, key);
}

// One load: takes entries from the file, then overrides, and remembers who set what, so that a
// relation between keys that fails can be blamed on the right place.
class Loader {
 public:
  Loader(std::span<const KeySpec> keys, Roots roots, std::string_view origin)
      : keys_(keys), roots_(roots), origin_(origin) {}

  Result<void> apply_text(std::string_view text);
  Result<void> apply_overrides(Overrides overrides);
  // Whether the last value given to the key was a list.
  bool given_as_list(std::string_view path) const;
  Error blame(const ConfigProblem& problem) const;

 private:
  struct Source {
    std::string place;
    bool is_override = false;
    bool is_list = false;
  };

  Result<void> apply_entry(const RawEntry& entry, const std::string& place, bool is_override);
  Result<void> check_version(const RawEntry& entry, const std::string& place);
  std::string unknown_section(std::string_view section) const;
  std::string unknown_key(std::string_view section, std::string_view key) const;

  std::span<const KeySpec> keys_;
  Roots roots_;
  std::string origin_;
  bool has_version_ = false;
  std::map<std::string, Source, std::less<>> sources_;  // by "section.key"
};

std::string Loader::unknown_section(std::string_view section) const {
  const std::vector<std::string_view> names = section_names(keys_);
  const std::string_view near = nearest(section, names);
  return fmt::format("found an unknown section, expected one of {}; {}", join(names),
                     near.empty() ? "take it out" : fmt::format("did you mean [{}]?", near));
}

std::string Loader::unknown_key(std::string_view section, std::string_view key) const {
  const std::vector<std::string_view> names = key_names(keys_, section);
  std::string advice;
  if (const std::string_view near = nearest(key, names); !near.empty()) {
    advice = fmt::format("did you mean {}?", near);
  } else {
    for (const KeySpec& spec : keys_)
      if (advice.empty() && spec.key == key)
        advice = fmt::format("it belongs into [{}]", spec.section);
    if (advice.empty() && !section.empty()) advice = fmt::format("its keys are {}", join(names));
    if (advice.empty()) advice = "move it into its section or take it out";
  }
  const std::string expected = section.empty() ? fmt::format("{} or a [section]", kConfigVersionKey)
                                               : fmt::format("a key of [{}]", section);
  return fmt::format("found an unknown key, expected {}; {}", expected, advice);
}

Result<void> Loader::check_version(const RawEntry& entry, const std::string& place) {
  const std::uint32_t current = RunConfig{}.config_version;
  const auto* version = std::get_if<std::int64_t>(&entry.value.data);
  has_version_ = true;
  if (version && std::cmp_equal(*version, current)) return {};
  const bool newer = version && std::cmp_greater(*version, current);
  return mistake(place, kConfigVersionKey,
                 fmt::format("found {}, expected {}; {}", shown(entry.value), current,
                             newer ? "this file needs a newer swarmline"
                                   : fmt::format("write config_version = {}", current)));
}

Result<void> Loader::apply_entry(const RawEntry& entry, const std::string& place,
                                 bool is_override) {
  const std::string path = path_of(entry.section, entry.key);
  if (entry.section.empty()) {
    if (entry.key == kConfigVersionKey) return check_version(entry, place);
    const bool is_section = !key_names(keys_, entry.key).empty();
    return mistake(place, path,
                   is_section
                       ? fmt::format("found {}, expected a section; write [{}] above its keys",
                                     shown(entry.value), entry.key)
                       : unknown_key("", entry.key));
  }
  if (key_names(keys_, entry.section).empty())
    return mistake(place, path, unknown_section(entry.section));
  if (entry.key.empty()) return {};  // the header of a known section
  const KeySpec* spec = find_key(keys_, entry.section, entry.key);
  const RetiredKey* retired = find_retired(entry.section, entry.key);
  if (retired && !is_override && (retired->only.empty() || shown(entry.value) == retired->only))
    return {};
  if (retired)
    return mistake(
        place, path,
        fmt::format("found a key of earlier versions, which does nothing: {} Take it out",
                    retired->doc));
  if (!spec) return mistake(place, path, unknown_key(entry.section, entry.key));
  if (auto assigned = assign(*spec, entry.value, roots_); !assigned)
    return mistake(place, path, assigned.error().what);
  const bool is_list = std::holds_alternative<std::vector<RawValue>>(entry.value.data);
  sources_.insert_or_assign(path, Source{place, is_override, is_list});
  return {};
}

Result<void> Loader::apply_text(std::string_view text) {
  if (text.size() > Limits::config_file_bytes_max) {
    return fail(
        ErrorCode::kUserMistake,
        fmt::format("{}: found {} bytes, expected a config of at most {}; name another file",
                    origin_, text.size(), Limits::config_file_bytes_max));
  }
  const Result<std::vector<RawEntry>> entries = read_toml(text, origin_);
  if (!entries) return std::unexpected(entries.error());
  // The version first: a newer file may well hold keys that are unknown here.
  for (const RawEntry& entry : *entries) {
    if (entry.section.empty() && entry.key == kConfigVersionKey)
      SWARMLINE_TRY(check_version(entry, fmt::format("{}:{}", origin_, entry.line)));
  }
  if (!has_version_) {
    return mistake(
        origin_ + ":1", kConfigVersionKey,
        fmt::format("found none, expected {}; write config_version = {} as the first line",
                    RunConfig{}.config_version, RunConfig{}.config_version));
  }
  for (const RawEntry& entry : *entries)
    SWARMLINE_TRY(apply_entry(entry, fmt::format("{}:{}", origin_, entry.line), false));
  return {};
}

Result<void> Loader::apply_overrides(Overrides overrides) {
  for (const std::string& text : overrides) {
    const std::size_t equals = text.find('=');
    const std::size_t dot = text.find('.');
    if (equals == std::string::npos || dot == 0 || dot >= equals || dot + 1 == equals) {
      return mistake(kOverridePlace, text.substr(0, 60),
                     "expected section.key=value; write for example --set run.steps=100");
    }
    const std::string value_text = text.substr(equals + 1);
    RawEntry entry{text.substr(0, dot), text.substr(dot + 1, equals - dot - 1), {}, 0};
    Result<RawValue> value = read_toml_value(value_text);
    if (!value)
      return mistake(kOverridePlace, path_of(entry.section, entry.key), value.error().what);
    const KeySpec* spec = find_key(keys_, entry.section, entry.key);
    const bool wants_text = spec && spec->kind.choices.empty() &&
                            std::holds_alternative<std::string*>(spec->field(roots_));
    // A run may be called 7 or 2026-01-01.
    if (wants_text && !std::holds_alternative<std::string>(value->data)) value->data = value_text;
    entry.value = std::move(*value);
    SWARMLINE_TRY(apply_entry(entry, std::string(kOverridePlace), true));
  }
  return {};
}

bool Loader::given_as_list(std::string_view path) const {
  const auto source = sources_.find(path);
  return source != sources_.end() && source->second.is_list;
}

Error Loader::blame(const ConfigProblem& problem) const {
  std::string_view culprit = problem.keys.front();
  std::string place = origin_.empty() ? std::string(kOverridePlace) : origin_;
  bool found = false;
  for (const bool want_override : {true, false}) {
    for (const std::string_view key : problem.keys) {
      const auto source = sources_.find(key);
      if (found || source == sources_.end() || source->second.is_override != want_override)
        continue;
      culprit = key;
      place = source->second.place;
      found = true;
    }
  }
  return mistake(place, culprit, problem.sentence).error();
}

Result<std::string> read_config_file(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    return fail(
        ErrorCode::kUserMistake,
        fmt::format("{}: found no such file, expected a TOML file; name one that exists, for "
                    "example configs/quickstart.toml",
                    path));
  }
  if (!std::filesystem::is_regular_file(path, error)) {
    return fail(
        ErrorCode::kUserMistake,
        fmt::format("{}: found no regular file, expected a TOML file; name the file itself", path));
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return fail(
        ErrorCode::kUserMistake,
        fmt::format("{}: found a file that cannot be opened ({}), expected a readable one; mend "
                    "its permissions",
                    path, std::strerror(errno)));
  }
  // One byte more than allowed, so that the caller sees a file that is too long.
  std::string text(Limits::config_file_bytes_max + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) return fail(ErrorCode::kIo, fmt::format("{}: reading failed", path));
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

Result<PeerConfig> load_peer(std::optional<std::string_view> text, std::string_view origin,
                             Overrides overrides) {
  PeerConfig config;
  Loader loader(peer_keys(), {.peer = &config}, origin);
  if (text) SWARMLINE_TRY(loader.apply_text(*text));
  SWARMLINE_TRY(loader.apply_overrides(overrides));
  if (const auto problem = find_problem(config)) return std::unexpected(loader.blame(*problem));
  return config;
}

}  // namespace

Result<RunConfig> run_config_from_text(std::string_view text, std::string_view origin,
                                       Overrides overrides) {
  RunConfig config;
  Loader loader(run_keys(), {.run = &config}, origin);
  SWARMLINE_TRY(loader.apply_text(text));
  SWARMLINE_TRY(loader.apply_overrides(overrides));
  if (!loader.given_as_list("pipeline.peers"))
    config.pipeline.peers.assign(config.pipeline.stages, config.pipeline.peers.front());
  if (const auto problem = find_problem(config)) return std::unexpected(loader.blame(*problem));
  return config;
}

Result<RunConfig> load_run_config(const std::string& path, Overrides overrides) {
  const Result<std::string> text = read_config_file(path);
  if (!text) return std::unexpected(text.error());
  return run_config_from_text(*text, path, overrides);
}

Result<PeerConfig> peer_config_from_text(std::string_view text, std::string_view origin,
                                         Overrides overrides) {
  return load_peer(text, origin, overrides);
}

Result<PeerConfig> load_peer_config(const std::string& path, Overrides overrides) {
  if (path.empty()) return load_peer(std::nullopt, "", overrides);
  const Result<std::string> text = read_config_file(path);
  if (!text) return std::unexpected(text.error());
  return load_peer(*text, path, overrides);
}

}  // namespace swarmline
