#include "engine/data/data_files.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include <fmt/format.h>

#include "base/log.h"
#include "engine/data/data_bounds.h"
#include "engine/data/prepared_manifest.h"
#include "engine/store/files.h"

namespace swarmline {

namespace {

std::unexpected<Error> mistake(std::string what) {
  return fail(ErrorCode::kUserMistake, std::move(what));
}

// The folder, or the file, that all matches lie below, or are.
std::string before_wildcards(const std::string& pattern) {
  const std::string fixed =
      pattern.substr(0, std::min(pattern.find_first_of("*?["), pattern.size()));
  if (fixed.size() == pattern.size()) return fixed;
  const std::size_t end = fixed.rfind('/');
  if (end == std::string::npos) return ".";
  return end == 0 ? "/" : fixed.substr(0, end);
}

std::string nothing_there(std::string_view key, const std::string& pattern) {
  if (is_folder(pattern))
    return fmt::format(
        "[data] {0}: \"{1}\" is a folder: name the files in it, for example \"{1}/**\", or make "
        "tokens of them by \"swarmline data prepare\"",
        key, pattern);
  if (pattern.starts_with("~"))
    return fmt::format(
        "[data] {}: no file matches \"{}\": ~ is the shell's word for your home folder; write the "
        "folder's full name",
        key, pattern);
  return fmt::format(
      "[data] {}: no file matches \"{}\": check the path (relative ones start at the current "
      "folder)",
      key, pattern);
}

class Listing {
 public:
  Listing(const DataSection& data, const std::string& root) : data_(data), root_(root) {}

  Result<void> add(std::string_view key, const std::string& pattern, std::uint32_t part);
  // What has been listed so far is not listed again.
  DataPaths take() { return std::move(out_); }

 private:
  Result<void> add_prepared(const std::string& folder, std::uint32_t part);
  Result<void> take_separator(const std::string& folder, const PreparedManifest& manifest);
  Result<void> add_matches(std::string_view key, const std::string& pattern, std::uint32_t part);
  void add_file(DataPath file) {
    if (seen_.insert(std::filesystem::path(file.path).lexically_normal().string()).second)
      out_.files.push_back(std::move(file));
  }

  const DataSection& data_;
  const std::string& root_;
  DataPaths out_;
  std::set<std::string> seen_;
};

Result<void> Listing::add(std::string_view key, const std::string& pattern, std::uint32_t part) {
  SWARMLINE_TRY(check_below_root(before_wildcards(pattern), root_));
  if (is_folder(pattern) && is_prepared(pattern)) return add_prepared(pattern, part);
  if (data_.mask_documents && data_.kind == DataKind::kTokens)
    return mistake(
        fmt::format("[data] mask_documents: \"{}\" does not say which token its documents begin "
                    "with, expected folders made by \"swarmline data prepare\"; prepare the texts, "
                    "or take mask_documents out",
                    pattern));
  out_.all_prepared = false;
  return add_matches(key, pattern, part);
}

Result<void> Listing::add_prepared(const std::string& folder, std::uint32_t part) {
  if (data_.kind != DataKind::kTokens)
    return mistake(fmt::format(
        "[data] files: \"{}\" is a folder of prepared tokens, found kind = \"bytes\"; write kind "
        "= \"tokens\"",
        folder));
  const auto manifest = read_prepared(folder);
  if (!manifest) return std::unexpected(manifest.error());
  const TokenFormat format =
      manifest->token_bytes == 2 ? TokenFormat::kUint16 : TokenFormat::kUint32;
  if (data_.token_format != TokenFormat::kAuto && data_.token_format != format)
    return mistake(
        fmt::format("[data] token_format: \"{}\" has uint{} tokens; write token_format = \"auto\"",
                    folder, manifest->token_bytes * 8));
  if (data_.mask_documents) SWARMLINE_TRY(take_separator(folder, *manifest));
  out_.vocab = std::max(out_.vocab, manifest->vocab);
  for (const PreparedFile& file : manifest->files) {
    const std::string path = (std::filesystem::path(folder) / file.name).string();
    const auto bytes = file_bytes(path);
    if (!bytes) return mistake(fmt::format("[data] files: {}", bytes.error().what));
    if (*bytes != file.tokens * manifest->token_bytes)
      return mistake(
          fmt::format("{}: found {} bytes, expected {} tokens of {}: the file was changed or cut "
                      "short; prepare "
                      "the data anew",
                      path, *bytes, file.tokens, manifest->token_bytes));
    add_file({.path = path, .part = part, .token_bytes = manifest->token_bytes});
  }
  return {};
}

Result<void> Listing::take_separator(const std::string& folder, const PreparedManifest& manifest) {
  const auto found = manifest.separator();
  if (!found)
    return mistake(
        fmt::format("[data] mask_documents: \"{}\" has no token between its documents; prepare it "
                    "anew without \"--end none\", or take mask_documents out",
                    folder));
  if (out_.separator && *out_.separator != *found)
    return mistake(fmt::format(
        "[data] mask_documents: documents of \"{}\" begin with token {}, and those of "
        "another folder with {}; prepare both with one tokenizer, --begin and --end, or "
        "take mask_documents out",
        folder, *found, *out_.separator));
  out_.separator = found;
  return {};
}

Result<void> Listing::add_matches(std::string_view key, const std::string& pattern,
                                  std::uint32_t part) {
  Result<std::vector<std::string>> paths = glob_files(pattern, kDataFilesMax);
  if (!paths && paths.error().code == ErrorCode::kRefused)
    return mistake(
        fmt::format("[data] {}: {}: join them into fewer, larger files", key, paths.error().what));
  if (!paths) return std::unexpected(paths.error());
  if (paths->empty()) return mistake(nothing_there(key, pattern));
  for (const std::string& path : *paths) {
    SWARMLINE_TRY(check_below_root(path, root_));
    add_file({.path = path, .part = part, .from_glob = has_wildcard(pattern)});
  }
  return {};
}

}  // namespace

std::uint32_t data_parts(const DataSection& data) {
  return std::max<std::uint32_t>(1, static_cast<std::uint32_t>(data.weights.size()));
}

// Whose config names the files may be somebody who should not see them.
Result<void> check_below_root(const std::string& path, const std::string& root) {
  if (root.empty()) return {};
  const auto below = lies_below(path, root);
  if (!below) return mistake(fmt::format("[data] files: {}", below.error().what));
  if (*below) return {};
  return mistake(
      fmt::format("[data] files: the run's config names \"{}\", which does not lie below this "
                  "peer's data root {}: start the peer where the data is, or with --data-root "
                  "DIR, if the run may read what is there",
                  path, root == "." ? "(the current folder)" : "\"" + root + "\""));
}

Result<DataPaths> list_data_files(const DataSection& data, const std::string& root) {
  if (data.files.empty())
    return mistake("[data] files is empty: name at least one file or glob to train on");
  Listing listing(data, root);
  // First, so that what they name is not trained on.
  for (const std::string& pattern : data.validation)
    SWARMLINE_TRY(listing.add("validation", pattern, data_parts(data)));
  for (std::size_t i = 0; i < data.files.size(); ++i)
    SWARMLINE_TRY(listing.add("files", data.files[i],
                              data.weights.empty() ? 0 : static_cast<std::uint32_t>(i)));
  DataPaths paths = listing.take();
  const auto trained_on = std::ranges::find_if(
      paths.files, [&](const DataPath& file) { return file.part < data_parts(data); });
  std::ranges::rotate(paths.files, trained_on);
  return paths;
}

std::optional<PackedFile> find_packed(std::string_view path, std::string_view head) {
  struct Kind {
    std::string_view extension, magic;
    PackedFile file;
  };
  constexpr Kind kKinds[] = {{".gz", "\x1f\x8b", {"a gzip file", true}},
                             {".zst", "\x28\xb5\x2f\xfd", {"a Zstandard file", true}},
                             {".parquet", "PAR1", {"a Parquet file", true}},
                             {".xz", "\xfd\x37zXZ", {"an xz file"}},
                             {".bz2", "BZh91AY&SY", {"a bzip2 file"}},
                             {".zip", "PK\x03\x04", {"a zip file"}}};
  for (const Kind& kind : kKinds)
    if (path.ends_with(kind.extension) || head.starts_with(kind.magic)) return kind.file;
  return std::nullopt;
}

}  // namespace swarmline
