#include "engine/data/data_manifest.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "engine/checkpoint/sha256.h"
#include "engine/store/files.h"
#include "engine/store/json_writer.h"
#include "engine/store/parallel.h"

namespace swarmline {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kHexShown = 12;
constexpr std::uint32_t kTokenBytesMax = 4;
constexpr int kManifestFormat = 1;

fs::path common_folder(const std::vector<fs::path>& files) {
  fs::path folder = files.front().parent_path();
  for (const fs::path& file : files) {
    const auto end = std::ranges::mismatch(folder, file.parent_path()).in1;
    fs::path shared;
    for (auto part = folder.begin(); part != end; ++part) shared /= *part;
    folder = shared;
  }
  return folder;
}

bool stays_below(const fs::path& name) {
  return !name.empty() && name.is_relative() &&
         std::ranges::none_of(name, [](const fs::path& part) { return part == ".."; });
}

// Their names below the folder that they have in common; absolute where they have none.
std::vector<fs::path> names_below(const std::vector<fs::path>& files, fs::path& folder) {
  folder = common_folder(files);
  std::vector<fs::path> names;
  names.reserve(files.size());
  for (const fs::path& file : files)
    names.push_back(folder.empty() ? file : file.lexically_relative(folder));
  if (std::ranges::all_of(names, stays_below)) return names;
  std::vector<fs::path> absolute;
  absolute.reserve(files.size());
  for (const fs::path& file : files) absolute.push_back(fs::absolute(file).lexically_normal());
  return names_below(absolute, folder);
}

std::string where(const DataManifest& manifest, const DataPlace& place) {
  if (!place.folder.empty()) return place.folder;
  return manifest.folder.empty() ? "." : manifest.folder;
}

// Empty: it is there, and may be read.
std::string why_lacking(const std::string& path, const std::string& root) {
  const auto below = lies_below(path, root);
  if (!below) return below.error().what;
  if (!*below)
    return fmt::format(
        "\"{}\" does not lie below this peer's data root {}: start the peer where the data is, or "
        "with --data DIR, where DIR has the files",
        path, root == "." ? "(the current folder)" : "\"" + root + "\"");
  if (file_exists(path) && !is_folder(path)) return {};
  return fmt::format("there is no file \"{}\": say by --data DIR where this machine has the data",
                     path);
}

std::string how_it_differs(const DataFile& file, const std::string& path,
                           const FileHashes& hashes) {
  const auto bytes = file_bytes(path);
  if (!bytes) return bytes.error().what;
  if (*bytes != file.bytes)
    return fmt::format("{} has another size: {} has {} bytes, the run's has {}; copy the run's",
                       file.name, path, *bytes, file.bytes);
  const auto hash = hashes.of(path, file.used);
  if (!hash) return hash.error().what;
  if (*hash == file.sha256) return {};
  return fmt::format(
      "{} has another content: the SHA-256 of {} begins with {}, of the run's with {}; copy the "
      "run's",
      file.name, path, hash->substr(0, kHexShown), file.sha256.substr(0, kHexShown));
}

}  // namespace

std::string DataManifest::fingerprint() const {
  Sha256 hash;
  for (const DataFile& file : files) {
    hash.update(as_bytes(fmt::format("{} {} {} {} {}\n", file.sha256, file.used, file.bytes,
                                     file.name.size(), file.name)));
    if (file.part > 0) hash.update(as_bytes(fmt::format("part {}\n", file.part)));
  }
  return hash.finish_hex();
}

Result<DataManifest> manifest_of(const TokenDataset& dataset, const FileHashes& hashes) {
  const std::vector<TokenDataset::UsedFile> used = dataset.used_files();
  std::vector<fs::path> paths;
  paths.reserve(used.size());
  for (const auto& file : used) paths.push_back(fs::path(file.path).lexically_normal());
  fs::path folder;
  const std::vector<fs::path> names = names_below(paths, folder);
  DataManifest manifest{.folder = folder.string(), .files = {}};
  for (std::size_t i = 0; i < used.size(); ++i)
    manifest.files.push_back({.name = names[i].string(),
                              .bytes = used[i].bytes,
                              .used = used[i].used,
                              .sha256 = {},
                              .header_bytes = used[i].header_bytes,
                              .token_bytes = used[i].token_bytes,
                              .part = used[i].part});
  SWARMLINE_TRY(for_each_at_once(used.size(), kHashThreadsMax, [&](std::size_t i) -> Result<void> {
    auto hashed = hashes.with_pieces(used[i].path, used[i].used, kDataPieceBytes);
    if (!hashed) return std::unexpected(std::move(hashed).error());
    manifest.files[i].sha256 = std::move(hashed->sha256);
    manifest.files[i].pieces = std::move(hashed->pieces);
    return {};
  }));
  return manifest;
}

Result<void> check_manifest(const DataManifest& manifest) {
  const auto wrong = [](const std::string& what) {
    return fail(ErrorCode::kCorrupt, "the coordinator's list of data files: " + what);
  };
  if (manifest.files.empty() || manifest.files.size() > kDataFilesMax)
    return wrong(fmt::format("{} files", manifest.files.size()));
  if (manifest.folder.size() > kDataNameBytesMax) return wrong("the folder's name is too long");
  for (const DataFile& file : manifest.files) {
    const bool has_name = file.name.size() <= kDataNameBytesMax &&
                          file.name.find('\0') == std::string::npos && stays_below(file.name);
    if (!has_name) return wrong("a name that is none of a file below a folder");
    const bool readable = file.header_bytes <= file.used && file.token_bytes >= 1 &&
                          file.token_bytes <= kTokenBytesMax &&
                          (file.used - file.header_bytes) % file.token_bytes == 0;
    if (file.used > file.bytes || file.sha256.size() != kSha256HexDigits || !readable)
      return wrong(fmt::format("\"{}\" can't be", file.name));
  }
  return {};
}

std::string to_json(const DataManifest& manifest) {
  JsonWriter json(1);
  json.begin_object().member("format", kManifestFormat).member("folder", manifest.folder);
  json.member("fingerprint", manifest.fingerprint()).member("piece_bytes", kDataPieceBytes);
  json.key("files").begin_array();
  for (const DataFile& file : manifest.files) {
    json.begin_object().member("name", file.name).member("bytes", file.bytes);
    json.member("used", file.used).member("header_bytes", file.header_bytes);
    json.member("token_bytes", file.token_bytes).member("part", file.part);
    json.member("sha256", file.sha256);
    json.key("pieces").begin_array();
    for (std::size_t at = 0; at < file.pieces.size(); at += kSha256HexDigits)
      json.value(std::string_view(file.pieces).substr(at, kSha256HexDigits));
    json.end_array().end_object();
  }
  json.end_array().end_object();
  return json.take() + "\n";
}

HeldData compare_data(const DataManifest& manifest, const DataPlace& place,
                      const FileHashes& hashes) {
  HeldData held{.fingerprint = manifest.fingerprint(), .lacks = {}, .differs = {}, .paths = {}};
  for (const DataFile& file : manifest.files) {
    held.paths.push_back((fs::path(where(manifest, place)) / file.name).string());
    held.lacks = why_lacking(held.paths.back(), place.root);
    if (!held.lacks.empty()) return held;
  }
  std::vector<std::string> differ(manifest.files.size());
  (void)for_each_at_once(manifest.files.size(), kHashThreadsMax,
                         [&](std::size_t i) -> Result<void> {
                           differ[i] = how_it_differs(manifest.files[i], held.paths[i], hashes);
                           return {};
                         });
  for (std::string& how : differ)
    if (held.differs.empty()) held.differs = std::move(how);
  return held;
}

}  // namespace swarmline
