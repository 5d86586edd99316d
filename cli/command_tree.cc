#include "cli/command_tree.h"

#include <algorithm>
#include <string_view>

namespace swarmline {
namespace {

std::string one_line(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  return text;
}

// What CLI11 and our own options write as {a,b,c}; empty: no such list.
std::vector<std::string> listed_words(std::string_view type) {
  const std::size_t begin = type.find('{');
  const std::size_t end = type.find('}', begin);
  if (begin == std::string_view::npos || end == std::string_view::npos) return {};
  std::vector<std::string> words(1);
  for (const char letter : type.substr(begin + 1, end - begin - 1)) {
    if (letter == ',')
      words.emplace_back();
    else
      words.back() += letter;
  }
  return words;
}

// By what help calls the value: names that are used for one thing throughout the program.
ValueKind kind_of(std::string_view type) {
  const auto names = [&](std::string_view part) { return type.find(part) != std::string::npos; };
  if (names("RUN") || type == "A" || type == "B") return ValueKind::kRun;
  if (names(".toml") || names(".TOML") || type == "CONFIG") return ValueKind::kToml;
  if (names("FOLDER") || names("DIR")) return ValueKind::kFolder;
  if (names("FILE") || type == "FLEET" || type == "TRACE") return ValueKind::kFile;
  return ValueKind::kAny;
}

CommandOption described(const CLI::Option& option, const std::string& command) {
  CommandOption result;
  for (const std::string& name : option.get_snames()) result.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) result.names.push_back("--" + name);
  if (result.names.empty()) result.names.push_back(option.get_name(true));
  result.help = one_line(option.get_description());
  result.repeatable = option.get_expected_max() > 1;
  if (option.get_items_expected_max() == 0) {
    result.kind = ValueKind::kFlag;
    return result;
  }
  const std::string type = option.get_type_name();
  result.value = type.substr(0, type.find(':'));
  result.words = listed_words(type);
  result.kind = result.words.empty() ? kind_of(type) : ValueKind::kWords;
  if (!result.words.empty()) result.value = result.names.back();
  if (command == "help" && option.get_positional()) result.kind = ValueKind::kCommands;
  return result;
}

void add(const CLI::App& command, const std::string& path, std::vector<CommandNode>& tree) {
  CommandNode node{.path = path,
                   .name = command.get_name(),
                   .help = one_line(command.get_description()),
                   .options = {},
                   .positionals = {},
                   .commands = {}};
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_group().empty()) continue;
    CommandOption found = described(*option, command.get_name());
    (option->nonpositional() ? node.options : node.positionals).push_back(std::move(found));
  }
  const auto below = command.get_subcommands(
      [](const CLI::App* candidate) { return !candidate->get_group().empty(); });
  for (const CLI::App* sub : below) node.commands.push_back(sub->get_name());
  tree.push_back(std::move(node));
  for (const CLI::App* sub : below) add(*sub, path_below(path, sub->get_name()), tree);
}

}  // namespace

std::string path_below(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + " " + name;
}

std::vector<CommandNode> command_tree(const CLI::App& app) {
  std::vector<CommandNode> tree;
  add(app, "", tree);
  return tree;
}

}  // namespace swarmline
