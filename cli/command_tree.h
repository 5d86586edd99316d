// The program's commands as values, read off CLI11's tree: what shells complete from.
//   Order: as the commands and options were added; a command comes before those below it.
//   Left out: what is hidden (an empty group).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace swarmline {

enum class ValueKind : std::uint8_t {
  kFlag,      // an option without a value
  kAny,       // nothing to propose
  kWords,     // one of `words`
  kToml,      // a TOML file
  kFile,      // any file
  kFolder,    // any folder
  kRun,       // a run folder
  kCommands,  // a command of the program
};

struct CommandOption {
  std::vector<std::string> names;  // "-h", "--help"; a positional's is "config"
  std::string value;               // what help calls its value: "SECTION.KEY=VALUE"
  std::string help;                // one line
  ValueKind kind = ValueKind::kAny;
  std::vector<std::string> words;
  bool repeatable = false;
};

struct CommandNode {
  std::string path;  // "bench ratio"; empty: the program itself
  std::string name;  // "ratio"
  std::string help;  // one line
  std::vector<CommandOption> options;
  std::vector<CommandOption> positionals;
  std::vector<std::string> commands;  // names of those below it
};

std::vector<CommandNode> command_tree(const CLI::App& app);
// "ratio" below "bench"; "bench" below "".
std::string path_below(const std::string& path, const std::string& name);

}  // namespace swarmline
