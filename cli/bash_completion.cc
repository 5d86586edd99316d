#include "cli/bash_completion.h"

#include <fmt/format.h>

namespace swarmline {
namespace {

// The tables that it asks come before it.
constexpr const char* kBashDriver = R"bash(
# Run folders whose path begins with $1.
_swarmline_runs() {
  local folder
  for folder in runs/*/ "$1"*/; do
    [[ $folder == "$1"* ]] || continue
    [[ -e ${folder}config.toml || -e ${folder}log.jsonl ]] && printf '%s\n' "${folder%/}"
  done | sort -u
}

# What may stand for a value of kind $1 that begins with $2.
_swarmline_candidates() {
  case $1 in
    toml) compgen -f -X '!*.toml' -- "$2"; compgen -d -- "$2" ;;
    file) compgen -f -- "$2" ;;
    folder) compgen -d -- "$2" ;;
    run)
      local runs
      runs=$(_swarmline_runs "$2")
      if [[ -n $runs ]]; then printf '%s\n' "$runs"; else compgen -d -- "$2"; fi
      ;;
    commands) compgen -W "$(_swarmline_commands '')" -- "$2" ;;
    words\ *) compgen -W "${1#words }" -- "$2" ;;
  esac
}

_swarmline() {
  local cur=${COMP_WORDS[COMP_CWORD]} command='' commands='' wanted='' positionals=0 i word
  for ((i = 1; i < COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    if [[ $word == '=' ]]; then # bash takes --option=value apart
      continue
    elif [[ -n $wanted && $word != --* ]]; then
      wanted=''
    elif [[ $word == -* ]]; then
      wanted=$(_swarmline_value "$command" "$word")
    elif ((positionals == 0)) && [[ " $(_swarmline_commands "$command") " == *" $word "* ]]; then
      command=${command:+$command }$word
    else
      positionals=$((positionals + 1))
    fi
  done
  [[ $cur == '=' ]] && cur=''
  if [[ -z $wanted && $cur == -* ]]; then
    wanted="words $(_swarmline_options "$command")"
  elif [[ -z $wanted ]]; then
    ((positionals == 0)) && commands=$(_swarmline_commands "$command")
    wanted=$(_swarmline_positional "$command" "$positionals")
  fi
  mapfile -t COMPREPLY < <(compgen -W "$commands" -- "$cur"; _swarmline_candidates "$wanted" "$cur")
  case $wanted in
    toml | file | folder | run) compopt -o filenames 2>/dev/null ;;
  esac
}
complete -F _swarmline swarmline
)bash";

std::string spelled(const CommandOption& option) {
  switch (option.kind) {
    case ValueKind::kFlag:
      return "";
    case ValueKind::kAny:
      return "any";
    case ValueKind::kWords:
      return fmt::format("words {}", fmt::join(option.words, " "));
    case ValueKind::kToml:
      return "toml";
    case ValueKind::kFile:
      return "file";
    case ValueKind::kFolder:
      return "folder";
    case ValueKind::kRun:
      return "run";
    case ValueKind::kCommands:
      return "commands";
  }
  return "";
}

std::string options_of(const CommandNode& node) {
  std::string names;
  for (const CommandOption& option : node.options)
    names += fmt::format("{}{}", names.empty() ? "" : " ", fmt::join(option.names, " "));
  return names;
}

// A function that prints an answer for what its arguments are.
std::string table(const char* name, const char* asked, const std::string& rows) {
  return fmt::format("_swarmline_{}() {{\n  case {} in\n{}  esac\n}}\n", name, asked, rows);
}
std::string row(const std::string& pattern, const std::string& answer) {
  return fmt::format("    '{}') echo '{}' ;;\n", pattern, answer);
}

}  // namespace

std::string bash_completion(std::span<const CommandNode> tree) {
  std::string commands, options, values, positionals;
  for (const CommandNode& node : tree) {
    if (!node.commands.empty())
      commands += row(node.path, fmt::format("{}", fmt::join(node.commands, " ")));
    options += row(node.path, options_of(node));
    for (const CommandOption& option : node.options)
      for (const std::string& name : option.names)
        if (option.kind != ValueKind::kFlag) values += row(node.path + " " + name, spelled(option));
    for (std::size_t i = 0; i < node.positionals.size(); ++i) {
      const bool last = i + 1 == node.positionals.size();
      positionals += fmt::format("    '{} '{}) echo '{}' ;;\n", node.path,
                                 last ? "*" : std::to_string(i), spelled(node.positionals[i]));
    }
  }
  return "# Completes swarmline's command line in bash; printed by \"swarmline completion "
         "bash\".\n" +
         table("commands", "$1", commands) + table("options", "$1", options) +
         table("value", "\"$1 $2\"", values) + table("positional", "\"$1 $2\"", positionals) +
         kBashDriver;
}

}  // namespace swarmline
