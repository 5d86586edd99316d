#include "cli/zsh_completion.h"

#include <string_view>

#include <fmt/format.h>

namespace swarmline {
namespace {

constexpr const char* kZshDriver = R"zsh(
_swarmline_runs() {
  local -a runs
  runs=(runs/*(N/))
  (($#runs)) && _describe -t runs 'run folder' runs
  _files -/
}

# Sourced, it registers itself; as a file of a folder in $fpath, it is the function's body.
if [[ $funcstack[1] == _swarmline ]]; then
  _swarmline "$@"
else
  compdef _swarmline swarmline
fi
)zsh";

// Within single quotes, and within the brackets of an _arguments specification.
std::string escaped(std::string_view text) {
  std::string result;
  for (const char letter : text) {
    if (letter == '\'') {
      result += "'\\''";
      continue;
    }
    if (letter == '[' || letter == ']' || letter == ':' || letter == '\\') result += '\\';
    result += letter;
  }
  return result;
}

std::string function_of(const std::string& path) {
  std::string name = "_swarmline";
  if (!path.empty()) name += "_command_";
  for (const char letter : path) name += letter == ' ' || letter == '-' ? '_' : letter;
  return name;
}

std::string action(const CommandOption& option) {
  switch (option.kind) {
    case ValueKind::kFlag:
    case ValueKind::kAny:
      return " ";
    case ValueKind::kWords:
      return fmt::format("({})", fmt::join(option.words, " "));
    case ValueKind::kToml:
      return "_files -g \"*.toml\"";
    case ValueKind::kFile:
      return "_files";
    case ValueKind::kFolder:
      return "_files -/";
    case ValueKind::kRun:
      return "_swarmline_runs";
    case ValueKind::kCommands:
      return "_swarmline_commands_of_all";
  }
  return " ";
}

std::string value_of(const CommandOption& option) {
  const std::string& said = option.value.empty() ? option.names.back() : option.value;
  return fmt::format(":{}:{}", escaped(said), action(option));
}

// One _arguments specification for each spelling; one that was used excludes the others.
std::string option_lines(const CommandOption& option) {
  std::string lines;
  const bool takes = option.kind != ValueKind::kFlag;
  for (const std::string& name : option.names) {
    const std::string before =
        option.repeatable ? "*" : fmt::format("({})", fmt::join(option.names, " "));
    lines += fmt::format(" \\\n    '{}{}{}[{}]{}'", before, name,
                         takes && name.starts_with("--") ? "=" : "", escaped(option.help),
                         takes ? value_of(option) : "");
  }
  return lines;
}

std::string described_commands(const CommandNode& node, std::span<const CommandNode> tree) {
  std::string lines;
  for (const std::string& name : node.commands)
    for (const CommandNode& below : tree)
      if (below.path == path_below(node.path, name))
        lines += fmt::format("    '{}:{}'\n", name, escaped(below.help));
  return lines;
}

std::string group_function(const CommandNode& node, std::span<const CommandNode> tree,
                           const std::string& options) {
  std::string cases;
  for (const std::string& name : node.commands)
    cases += fmt::format("      {}) {} ;;\n", name, function_of(path_below(node.path, name)));
  std::string positional;
  if (!node.positionals.empty())
    positional = fmt::format("      {}\n", action(node.positionals.front()));
  return fmt::format(
      "{0}() {{\n  local curcontext=$curcontext context state state_descr line\n"
      "  typeset -A opt_args\n  local -a commands=(\n{1}  )\n"
      "  _arguments -C{2} \\\n    '1:command:->command' '*::argument:->argument'\n"
      "  case $state in\n    command)\n      _describe -t commands command commands\n{4}      ;;\n"
      "    argument)\n      case $line[1] in\n{3}      esac\n      ;;\n  esac\n}}\n",
      function_of(node.path), described_commands(node, tree), options, cases, positional);
}

std::string command_function(const CommandNode& node, const std::string& options) {
  std::string positionals;
  for (std::size_t i = 0; i < node.positionals.size(); ++i) {
    const CommandOption& positional = node.positionals[i];
    const std::string which = positional.repeatable ? "*" : std::to_string(i + 1) + ":";
    positionals += fmt::format(" \\\n    '{}{}'", which, value_of(positional));
  }
  return fmt::format("{}() {{\n  _arguments{}{}\n}}\n", function_of(node.path), options,
                     positionals);
}

}  // namespace

std::string zsh_completion(std::span<const CommandNode> tree) {
  std::string script =
      "#compdef swarmline\n"
      "# Completes swarmline's command line in zsh; printed by \"swarmline completion zsh\".\n";
  for (const CommandNode& node : tree) {
    std::string options;
    for (const CommandOption& option : node.options) options += option_lines(option);
    script += node.commands.empty() ? command_function(node, options)
                                    : group_function(node, tree, options);
  }
  script += fmt::format(
      "_swarmline_commands_of_all() {{\n  local -a commands=(\n{}  )\n"
      "  _describe -t commands command commands\n}}\n",
      described_commands(tree.front(), tree));
  return script + kZshDriver;
}

}  // namespace swarmline
