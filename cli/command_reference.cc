#include "cli/command_reference.h"

#include <string_view>
#include <vector>

#include <fmt/format.h>

namespace swarmline {
namespace {

// '|' would end a cell.
std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

std::string code(std::string_view text) {
  return text.empty() ? std::string() : fmt::format("`{}`", cell(text));
}

bool is_shown(const CLI::Option& option, const CLI::App& command) {
  return !option.get_group().empty() && &option != command.get_help_ptr();
}

// CLI11 writes checks behind the type: "LEVEL:{debug,info}", "N:INT in [1 - 64]".
struct Value {
  std::string name;
  std::string check;
};

std::string plain_type(const std::string& type) {
  if (type == "INT" || type == "UINT") return "N";
  return type == "FLOAT" ? "NUMBER" : type;
}

Value value_of(const CLI::Option& option) {
  if (option.get_type_size() == 0) return {};  // a flag
  const std::string text = option.get_type_name();
  const std::size_t colon = text.find(":{");
  if (colon != std::string::npos) return {text.substr(colon + 2, text.find('}') - colon - 2), {}};
  const std::size_t in = text.find(" in [");
  if (in == std::string::npos) return {plain_type(text.substr(0, text.find(":NONNEGATIVE"))), {}};
  std::string range = text.substr(in + 5);
  range.erase(range.find(']'));
  range.replace(range.find(" - "), 3, " to ");
  return {plain_type(text.substr(0, text.rfind(':', in))), range};
}

std::string row(const CLI::Option& option) {
  const std::string name =
      option.get_positional() ? option.get_name(true) : option.get_name(false, true);
  const Value value = value_of(option);
  std::string text = option.get_description();
  if (!value.check.empty()) text += "; " + value.check;
  for (const CLI::Option* other : option.get_needs())
    text += fmt::format("; needs {}", other->get_name());
  for (const CLI::Option* other : option.get_excludes())
    text += fmt::format("; not with {}", other->get_name());
  if (option.get_required()) text += " (required)";
  return fmt::format("| {} | {} | {} | {} |\n", code(name), code(value.name),
                     code(option.get_default_str()), cell(text));
}

std::string option_table(const CLI::App& command) {
  std::string rows;
  for (const bool positional : {true, false})
    for (const CLI::Option* option : command.get_options())
      if (is_shown(*option, command) && option->get_positional() == positional)
        rows += row(*option);
  if (rows.empty()) return {};
  return "\n| argument or option | value | default | meaning |\n|---|---|---|---|\n" + rows;
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

// What --help says below the options: sentences, then "Example: ..." or "Examples:" and lines.
std::string notes_and_examples(const CLI::App& command) {
  std::string notes, examples;
  bool in_examples = false;
  for (std::string_view line : lines_of(command.get_footer())) {
    if (line.starts_with("Example")) {
      in_examples = true;
      line.remove_prefix(std::min(line.find(':') + 1, line.size()));
    }
    while (in_examples && line.starts_with(' ')) line.remove_prefix(1);
    if (!line.empty()) (in_examples ? examples : notes) += fmt::format("{}\n", line);
  }
  if (!notes.empty()) notes = "\n" + notes;
  if (!examples.empty()) examples = fmt::format("\n```sh\n{}```\n", examples);
  return notes + examples;
}

void add_command(const CLI::App& command, const std::string& name, std::string& out) {
  out += fmt::format("## {}\n\n{}.\n", name, command.get_description());
  out += option_table(command);
  out += notes_and_examples(command);
  for (const CLI::App* below : command.get_subcommands([](const CLI::App*) { return true; })) {
    if (below->get_group().empty()) continue;  // hidden
    out += "\n";
    add_command(*below, name + " " + below->get_name(), out);
  }
}

}  // namespace

std::string command_reference(const CLI::App& app) {
  std::string out;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->get_group().empty()) continue;
    if (!out.empty()) out += "\n";
    add_command(*command, app.get_name() + " " + command->get_name(), out);
  }
  return out;
}

}  // namespace swarmline
