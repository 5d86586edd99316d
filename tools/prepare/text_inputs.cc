#include "tools/prepare/text_inputs.h"

#include <set>

#include <fmt/format.h>

#include "engine/store/files.h"

namespace swarmline {

namespace {

std::unexpected<Error> mistake(std::string what) {
  return fail(ErrorCode::kUserMistake, std::move(what));
}

InputKind kind_of(std::string_view path) {
  if (path.ends_with(".parquet")) return InputKind::kParquet;
  for (const std::string_view packed : {".gz", ".zst"})
    if (path.ends_with(packed)) path.remove_suffix(packed.size());
  const bool json = path.ends_with(".jsonl") || path.ends_with(".ndjson");
  return json ? InputKind::kJsonl : InputKind::kText;
}

Result<std::vector<std::string>> files_of(const std::string& word) {
  if (word == kStandardInput) return std::vector<std::string>{word};
  auto paths = glob_files(word, kTextInputsMax);
  if (!paths && paths.error().code == ErrorCode::kRefused) return mistake(paths.error().what);
  if (!paths || !paths->empty()) return paths;
  if (is_folder(word))
    return mistake(
        fmt::format("\"{0}\" is a folder; name the files in it, for example '{0}/**/*.txt'", word));
  if (word.starts_with("~"))
    return mistake(
        fmt::format("no file matches \"{}\"; ~ is the shell's word for your home "
                    "folder, which it does not replace in quotes",
                    word));
  return mistake(fmt::format("no file matches \"{}\"; check the path", word));
}

}  // namespace

Result<std::vector<TextInput>> find_text_inputs(std::span<const std::string> words,
                                                std::optional<InputKind> kind) {
  std::vector<TextInput> inputs;
  std::set<std::string> seen;
  for (const std::string& word : words) {
    const auto paths = files_of(word);
    if (!paths) return std::unexpected(paths.error());
    for (const std::string& path : *paths) {
      if (!seen.insert(path).second) continue;
      std::uint64_t bytes = 0;
      if (path != kStandardInput) {
        const auto size = file_bytes(path);
        if (!size) return std::unexpected(size.error());
        bytes = *size;
      }
      if (path == kStandardInput && kind == InputKind::kParquet)
        return mistake("Parquet can't be read from standard input; name its file");
      inputs.push_back({.path = path, .kind = kind.value_or(kind_of(path)), .bytes = bytes});
    }
  }
  if (inputs.empty()) return mistake("name at least one file, glob, or - for standard input");
  return inputs;
}

}  // namespace swarmline
