#include "cli/fish_completion.h"

#include <string_view>

#include <fmt/format.h>

namespace swarmline {
namespace {

// The command that has been typed so far is the longest chain of words that is one.
constexpr const char* kFishDriver = R"fish(
function __swarmline_at
    set -l path
    for word in (commandline -opc)[2..-1]
        if contains -- (string join ' ' $path $word) $__swarmline_paths
            set path $path $word
        end
    end
    test "$path" = "$argv[1]"
end

function __swarmline_runs
    for folder in runs/*/ (commandline -ct)*/
        if test -e $folder/config.toml -o -e $folder/log.jsonl
            string trim -r -c / $folder
        end
    end
end
complete -c swarmline -f
)fish";

std::string fish_quoted(std::string_view text) {
  std::string result = "'";
  for (const char letter : text) {
    if (letter == '\'' || letter == '\\') result += '\\';
    result += letter;
  }
  return result + "'";
}

std::string proposals(const CommandOption& option, const CommandNode& root) {
  switch (option.kind) {
    case ValueKind::kFlag:
    case ValueKind::kAny:
      return "";
    case ValueKind::kWords:
      return fmt::format("{}", fmt::join(option.words, " "));
    case ValueKind::kToml:
      return "(__fish_complete_suffix .toml)";
    case ValueKind::kFile:
      return "(__fish_complete_path)";
    case ValueKind::kFolder:
      return "(__fish_complete_directories)";
    case ValueKind::kRun:
      return "(__swarmline_runs)";
    case ValueKind::kCommands:
      return fmt::format("{}", fmt::join(root.commands, " "));
  }
  return "";
}

std::string line_at(const CommandNode& node) {
  return fmt::format("complete -c swarmline -n {}",
                     fish_quoted(fmt::format("__swarmline_at \"{}\"", node.path)));
}

std::string option_line(const CommandNode& node, const CommandOption& option,
                        const CommandNode& root) {
  std::string line = line_at(node);
  for (const std::string& name : option.names)
    line += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  if (option.kind != ValueKind::kFlag) line += " -x";
  const std::string proposed = proposals(option, root);
  if (!proposed.empty()) line += " -a " + fish_quoted(proposed);
  return line + " -d " + fish_quoted(option.help) + "\n";
}

}  // namespace

std::string fish_completion(std::span<const CommandNode> tree) {
  const CommandNode& root = tree.front();
  std::string paths, lines;
  for (const CommandNode& node : tree) {
    if (!node.path.empty()) paths += " " + fish_quoted(node.path);
    for (const CommandNode& below : tree)
      for (const std::string& name : node.commands)
        if (below.path == path_below(node.path, name))
          lines += fmt::format("{} -a {} -d {}\n", line_at(node), name, fish_quoted(below.help));
    for (const CommandOption& option : node.options) lines += option_line(node, option, root);
    for (const CommandOption& positional : node.positionals)
      if (const std::string proposed = proposals(positional, root); !proposed.empty())
        lines += fmt::format("{} -a {}\n", line_at(node), fish_quoted(proposed));
  }
  return "# Completes swarmline's command line in fish; printed by \"swarmline completion fish\".\n"
         "set -g __swarmline_paths" +
         paths + "\n" + kFishDriver + lines;
}

}  // namespace swarmline
