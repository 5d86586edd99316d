#include "cli/examples.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include <fmt/format.h>

#include "base/nearest.h"
#include "cli/example_texts.h"
#include "engine/config/load.h"
#include "engine/store/files.h"
#include "node/child_process.h"
#include "node/run_data.h"

namespace swarmline {
namespace {

constexpr const char* kInstalledText = "share/swarmline/text/swarmline.txt";  // below the prefix

// Empty: the program runs where it was built.
std::string installed_text() {
  const auto program = own_program_path();
  if (!program) return {};
  const auto prefix = std::filesystem::path(*program).parent_path().parent_path();
  std::string path = (prefix / kInstalledText).string();
  return file_exists(path) ? path : "";
}

// Of the comment that a config begins with, on one line.
std::string first_sentence(std::string_view text) {
  std::string comment;
  while (text.starts_with("# ")) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    if (!comment.empty()) comment += ' ';
    comment += text.substr(2, end - 2);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  comment.resize(std::min(comment.find(". "), comment.size()));
  if (comment.ends_with('.')) comment.pop_back();
  return comment;
}

// What the user named instead is left as it is.
Result<void> bring_data(const Example& example, RunConfig& config) {
  const auto plain = run_config_from_text(example.text, example.name);
  if (!plain) return std::unexpected(plain.error());
  if (config.data.kind != DataKind::kBytes || config.data.files != plain->data.files) return {};
  const auto missing = missing_data(config);
  if (!missing) return std::unexpected(missing.error());
  if (missing->empty()) return {};
  const std::string text = installed_text();
  if (text.empty()) return {};
  std::fprintf(stderr,
               "swarmline: the example %s names %s, which matches nothing here; it takes %s\n",
               std::string(example.name).c_str(), missing->c_str(), text.c_str());
  config.data.files = {text};
  return {};
}

}  // namespace

std::span<const Example> examples() {
  return kExampleTexts;
}

Result<Example> find_example(std::string_view name) {
  const auto found = std::ranges::find(kExampleTexts, name, &Example::name);
  if (found != std::end(kExampleTexts)) return *found;
  std::vector<std::string_view> names;
  for (const Example& example : kExampleTexts) names.push_back(example.name);
  const std::string_view meant = nearest(name, names);
  return fail(
      ErrorCode::kUserMistake,
      fmt::format("found the example {}, expected one of {}{}", name, names_of_examples(", "),
                  meant.empty() ? "" : fmt::format("; did you mean {}?", meant)));
}

Result<RunConfig> load_example(std::string_view name, std::span<const std::string> overrides) {
  const auto example = find_example(name);
  if (!example) return std::unexpected(example.error());
  auto config =
      run_config_from_text(example->text, fmt::format("example {}", example->name), overrides);
  if (config) SWARMLINE_TRY(bring_data(*example, *config));
  return config;
}

std::string list_of_examples() {
  std::string list;
  for (const Example& example : kExampleTexts)
    list += fmt::format("{:<12} {}\n", example.name, first_sentence(example.text));
  return list;
}

std::string names_of_examples(std::string_view separator) {
  std::string names;
  for (const Example& example : kExampleTexts) {
    if (!names.empty()) names += separator;
    names += example.name;
  }
  return names;
}

}  // namespace swarmline
