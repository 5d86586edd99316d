#include "tools/prepare/data_info.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "base/bytes.h"
#include "base/printable.h"
#include "console/text.h"
#include "engine/checkpoint/sha256.h"
#include "engine/data/prepared_manifest.h"
#include "engine/data/token_file.h"
#include "engine/store/files.h"
#include "engine/store/json_writer.h"
#include "engine/store/parallel.h"
#include "engine/tokenizer/open_tokenizer.h"
#include "tools/prepare/byte_source.h"
#include "tools/prepare/json_line.h"
#include "tools/prepare/text_inputs.h"

namespace swarmline {

namespace {

namespace fs = std::filesystem;

constexpr int kInfoFormat = 1;
constexpr std::size_t kSampleTokens = 64;
constexpr std::size_t kSampleBytes = 240;
constexpr std::size_t kReadAtOnce = 1 * kMiB;
constexpr std::uint32_t kHashThreads = 4;

std::uint32_t token_at(const TokenFileView& view, std::uint64_t i) {
  std::uint32_t token = 0;
  std::memcpy(&token, view.tokens.data() + i * view.token_bytes, view.token_bytes);
  return token;
}

std::vector<std::uint32_t> first_tokens(const TokenFileView& view) {
  std::vector<std::uint32_t> tokens;
  for (std::uint64_t i = 0; i < std::min<std::uint64_t>(kSampleTokens, view.count()); ++i)
    tokens.push_back(token_at(view, i));
  return tokens;
}

Result<void> verify_file(const std::string& path, const std::string& sha256) {
  const auto mapped = MappedFile::open(path);
  if (!mapped) return fail(ErrorCode::kUserMistake, mapped.error().what);
  if (sha256_hex((*mapped)->bytes()) == sha256) return {};
  return fail(ErrorCode::kCorrupt,
              fmt::format("{}: found another SHA-256 than the list of the folder has: the file was "
                          "changed or is damaged; prepare the data anew",
                          path));
}

Result<DataInfo> look_at_prepared(const std::string& folder, const DataInfoOptions& options) {
  const auto manifest = read_prepared(folder);
  if (!manifest) return std::unexpected(manifest.error());
  const auto path_of = [&](const std::string& name) { return (fs::path(folder) / name).string(); };
  if (options.verify)
    SWARMLINE_TRY(for_each_at_once(manifest->files.size(), kHashThreads, [&](std::size_t i) {
      return verify_file(path_of(manifest->files[i].name), manifest->files[i].sha256);
    }));
  if (options.verify && !manifest->tokenizer.file.empty())
    SWARMLINE_TRY(verify_file(path_of(manifest->tokenizer.file), manifest->tokenizer.sha256));
  DataInfo info{.path = folder,
                .kind = "prepared folder",
                .format = fmt::format("uint{}", manifest->token_bytes * 8),
                .files = manifest->files.size(),
                .bytes = manifest->tokens * manifest->token_bytes,
                .tokens = manifest->tokens,
                .documents = manifest->documents,
                .text_bytes = manifest->text_bytes,
                .vocab = manifest->vocab,
                .document_begin = manifest->document_begin,
                .document_end = manifest->document_end,
                .tokenizer = manifest->tokenizer.kind,
                .verified = options.verify};
  const auto tokenizer = open_tokenizer(tokenizer_path(folder, manifest->tokenizer));
  if (!tokenizer) return std::unexpected(tokenizer.error());
  info.tokenizer = (*tokenizer)->description();
  if (manifest->tokenizer.name != manifest->tokenizer.kind)
    info.tokenizer += fmt::format(" ({})", manifest->tokenizer.name);
  if (manifest->files.empty()) return info;
  const std::string first = path_of(manifest->files.front().name);
  const auto mapped = MappedFile::open(first);
  if (!mapped) return fail(ErrorCode::kUserMistake, mapped.error().what);
  const TokenFormat format =
      manifest->token_bytes == 2 ? TokenFormat::kUint16 : TokenFormat::kUint32;
  const auto view = view_token_file((*mapped)->bytes(), format, first);
  if (!view) return std::unexpected(view.error());
  info.sample = (*tokenizer)->decode(first_tokens(*view), true);
  return info;
}

Result<DataInfo> look_at_tokens(const std::string& path) {
  const auto mapped = MappedFile::open(path);
  if (!mapped) return fail(ErrorCode::kUserMistake, mapped.error().what);
  const auto view = view_token_file((*mapped)->bytes(), TokenFormat::kAuto, path);
  if (!view) return std::unexpected(view.error());
  std::uint32_t largest = 0;
  for (std::uint64_t i = 0; i < view->count(); ++i) largest = std::max(largest, token_at(*view, i));
  std::string sample;
  for (const std::uint32_t token : first_tokens(*view)) sample += fmt::format("{} ", token);
  return DataInfo{.path = path,
                  .kind = "token file",
                  .format = fmt::format("{}uint{}", view->header_bytes > 0 ? "llm.c, " : "",
                                        view->token_bytes * 8),
                  .bytes = (*mapped)->bytes().size(),
                  .tokens = view->count(),
                  .largest = largest,
                  .sample = sample};
}

// All of it is read, so that a damaged archive is found.
Result<DataInfo> look_at_text(const std::string& path, const DataInfoOptions& options) {
  const auto inputs = find_text_inputs(std::span(&path, 1), std::nullopt);
  if (!inputs) return std::unexpected(inputs.error());
  if (inputs->front().kind == InputKind::kParquet)
    return fail(
        ErrorCode::kUserMistake,
        fmt::format("{}: this is a Parquet file, of which nothing is told here; make tokens "
                    "of it with swarmline data prepare, and look at those",
                    path));
  const bool json = inputs->front().kind == InputKind::kJsonl;
  auto source = open_byte_source(path);
  if (!source) return std::unexpected(source.error());
  DataInfo info{.path = path, .kind = json ? "JSONL" : "text", .bytes = inputs->front().bytes};
  std::vector<char> room(kReadAtOnce);
  std::uint64_t text_bytes = 0, lines = 0;
  std::string first;
  while (true) {
    const auto got = (*source)->read(room);
    if (!got) return std::unexpected(got.error());
    if (*got == 0) break;
    const std::string_view piece(room.data(), *got);
    if (first.empty()) first = piece;
    text_bytes += piece.size();
    lines += static_cast<std::uint64_t>(std::ranges::count(piece, '\n'));
  }
  const bool packed = (*source)->consumed() != text_bytes;
  info.format = packed ? "compressed" : "plain";
  info.text_bytes = text_bytes;
  info.documents = json ? lines : (text_bytes > 0 ? 1 : 0);
  info.sample = first.substr(0, kSampleBytes);
  if (json && !first.empty()) {
    auto text = text_of_json_line(first.substr(0, first.find('\n')), options.text_key);
    if (!text)
      return fail(ErrorCode::kUserMistake, fmt::format("{}:1: {}", path, text.error().what));
    info.sample = std::move(*text);
  }
  return info;
}

}  // namespace

Result<DataInfo> look_at_data(const std::string& path, const DataInfoOptions& options) {
  if (!file_exists(path))
    return fail(
        ErrorCode::kUserMistake,
        fmt::format("found no \"{}\", expected a prepared folder, a file of tokens or a text",
                    path));
  if (is_folder(path)) {
    if (is_prepared(path)) return look_at_prepared(path, options);
    return fail(
        ErrorCode::kUserMistake,
        fmt::format("{}: found no prepared data in this folder; make it by \"swarmline data "
                    "prepare\", or name a file",
                    path));
  }
  if (options.verify)
    return fail(ErrorCode::kUserMistake,
                fmt::format("{}: only a prepared folder has hashes that can be verified", path));
  return path.ends_with(".bin") ? look_at_tokens(path) : look_at_text(path, options);
}

std::string to_text(const DataInfo& info) {
  std::string out;
  const auto row = [&](std::string_view name, const std::string& value) {
    out += fmt::format("{:<12}{}\n", name, value);
  };
  const auto number = [&](std::string_view name, const auto& value) {
    if (value) row(name, with_commas(*value));
  };
  out += fmt::format("{}: {}, {}\n", printable_lines(info.path), info.kind, info.format);
  row("files",
      fmt::format("{}, {}", with_commas(info.files), human_bytes(static_cast<double>(info.bytes))));
  number("tokens", info.tokens);
  number("documents", info.documents);
  if (info.text_bytes) row("text", human_bytes(static_cast<double>(*info.text_bytes)));
  if (info.text_bytes && info.tokens && *info.tokens > 0)
    row("per token", fmt::format("{:.2f} bytes of text", static_cast<double>(*info.text_bytes) /
                                                             static_cast<double>(*info.tokens)));
  if (!info.tokenizer.empty()) row("tokenizer", printable_lines(info.tokenizer));
  number("vocabulary", info.vocab);
  number("largest", info.largest);
  if (info.document_begin)
    row("documents", fmt::format("begin with token {}", *info.document_begin));
  if (info.document_end) row("documents", fmt::format("end with token {}", *info.document_end));
  if (info.verified) row("hashes", "all as they should be");
  if (!info.sample.empty()) row("begins", printable(info.sample, kSampleBytes));
  return out;
}

std::string to_json(const DataInfo& info) {
  JsonWriter json(2);
  json.begin_object().member("format", kInfoFormat).member("path", info.path);
  json.member("kind", info.kind).member("encoding", info.format).member("files", info.files);
  json.member("bytes", info.bytes).member("tokens", info.tokens);
  json.member("documents", info.documents).member("text_bytes", info.text_bytes);
  json.member("vocab", info.vocab).member("largest_token", info.largest);
  json.member("document_begin", info.document_begin).member("document_end", info.document_end);
  json.member("tokenizer", info.tokenizer).member("verified", info.verified);
  json.member("begins", info.sample).end_object();
  return json.take() + "\n";
}

}  // namespace swarmline
