#include <string>

#include <fmt/format.h>

#include "engine/config/load.h"
#include "engine/config/schema.h"

namespace swarmline {
namespace {

constexpr std::string_view kHead = R"(# The config file

A run is one TOML file, and `swarmline launch run.toml` starts it. Its first line is
`config_version = 1`. Every key except `data.files` has a default; `swarmline config check run.toml`
prints the file with all of them filled in. `--set section.key=value` overrides a key on the command
line: the value is TOML, and a bare word is taken as text (`--set optimizer.kind=lamb`). A mistake
is reported in one sentence with file, line and key, and ends the program with exit code 2.

This page is generated from the program's own table of keys.
)";

constexpr std::string_view kPeerHead = R"(
# The peer file

A peer file holds what belongs to one machine, also with `config_version = 1` as its first line:
`swarmline peer --config peer.toml`. A peer gets everything else from the coordinator. Most of
these keys have a flag of their own, too (`swarmline peer --help`).
)";

// '|' would end a cell.
std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '|' ? std::string("\\|") : std::string(1, c);
  return out;
}

std::string sections(std::span<const KeySpec> keys) {
  std::string text;
  for (const std::string_view section : section_names(keys)) {
    text += fmt::format("\n## [{}]\n\n| key | value | default | meaning |\n|---|---|---|---|\n",
                        section);
    for (const KeySpec& spec : keys) {
      if (spec.section != section) continue;
      text += fmt::format("| `{}` | {} | `{}` | {} |\n", spec.key, cell(expectation(spec)),
                          cell(default_text(spec)), cell(spec.doc));
    }
  }
  return text;
}

std::string retired() {
  std::string text =
      "\n## Keys of earlier versions\n\nThese keys have no effect. A file may still hold them, as "
      "the files in older run folders do; they are ignored.\n\n| key | what happens instead |\n"
      "|---|---|\n";
  for (const RetiredKey& key : retired_keys())
    text += fmt::format("| `{}.{}` | {} |\n", key.section, key.key, cell(key.doc));
  return text;
}

}  // namespace

std::string config_reference() {
  return std::string(kHead) + sections(run_keys()) + retired() + std::string(kPeerHead) +
         sections(peer_keys());
}

}  // namespace swarmline
