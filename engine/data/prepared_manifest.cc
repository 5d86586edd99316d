#include "engine/data/prepared_manifest.h"

#include <filesystem>

#include <fmt/format.h>

#include "engine/checkpoint/sha256.h"
#include "engine/data/data_bounds.h"
#include "engine/store/files.h"
#include "engine/store/json_writer.h"
#include "engine/store/strict_json.h"

namespace swarmline {

namespace {

namespace json = boost::json;

// Reads members of one object, and remembers the first that is not as it should be.
class Members {
 public:
  Members(const json::object& object, std::string what) : object_(object), what_(std::move(what)) {}

  std::uint64_t count(std::string_view name, std::uint64_t max) {
    const json::value* value = find(name);
    std::uint64_t number = 0;
    if (value && value->is_int64() && value->get_int64() >= 0)
      number = static_cast<std::uint64_t>(value->get_int64());
    else if (value && value->is_uint64())
      number = value->get_uint64();
    else
      wrong(name);
    if (number > max) wrong(name);
    return number;
  }
  std::optional<std::uint32_t> token(std::string_view name) {
    const json::value* value = find(name);
    if (value && value->is_null()) return std::nullopt;
    return static_cast<std::uint32_t>(count(name, kVocabMax - 1));
  }
  std::string text(std::string_view name) {
    const json::value* value = find(name);
    if (value && value->is_string()) return std::string(value->get_string());
    wrong(name);
    return {};
  }
  std::string sha256(std::string_view name, bool may_lack) {
    std::string hex = text(name);
    const bool is_hash = hex.size() == kSha256HexDigits &&
                         hex.find_first_not_of("0123456789abcdef") == std::string::npos;
    if (!is_hash && !(may_lack && hex.empty())) wrong(name);
    return hex;
  }
  const json::value* find(std::string_view name) const { return object_.if_contains(name); }
  void wrong(std::string_view name) {
    if (problem_.empty()) problem_ = fmt::format("{}\"{}\"", what_, name);
  }
  const std::string& problem() const { return problem_; }

 private:
  const json::object& object_;
  std::string what_;
  std::string problem_;
};

// A file of the folder, and no other: the list may come from anywhere.
bool is_own_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

std::string read_tokenizer(const json::value* value, PreparedTokenizer& tokenizer) {
  if (!value || !value->is_object()) return "\"tokenizer\"";
  Members members(value->get_object(), "tokenizer's ");
  tokenizer.kind = members.text("kind");
  tokenizer.name = members.text("name");
  tokenizer.file = members.text("file");
  tokenizer.sha256 = members.sha256("sha256", true);
  if (!tokenizer.file.empty() && !is_own_name(tokenizer.file)) members.wrong("file");
  return members.problem();
}

std::string read_files(const json::value* value, PreparedManifest& manifest) {
  if (!value || !value->is_array() || value->get_array().size() > kDataFilesMax) return "\"files\"";
  std::uint64_t tokens = 0;
  for (const json::value& item : value->get_array()) {
    if (!item.is_object()) return "\"files\"";
    Members members(item.get_object(), "a file's ");
    PreparedFile file{.name = members.text("name"),
                      .tokens = members.count("tokens", 1ULL << 60),
                      .documents = members.count("documents", 1ULL << 60),
                      .sha256 = members.sha256("sha256", false)};
    if (!is_own_name(file.name)) members.wrong("name");
    if (!members.problem().empty()) return members.problem();
    tokens += file.tokens;
    manifest.files.push_back(std::move(file));
  }
  return tokens == manifest.tokens ? "" : "\"tokens\", which the files' do not add up to";
}

}  // namespace

std::string tokenizer_path(const std::string& folder, const PreparedTokenizer& tokenizer) {
  if (tokenizer.file.empty()) return tokenizer.kind;
  return (std::filesystem::path(folder) / tokenizer.file).string();
}

std::string to_json(const PreparedManifest& manifest) {
  JsonWriter json(1);
  json.begin_object().member("format", kPreparedFormat);
  json.member("token_bytes", manifest.token_bytes).member("vocab", manifest.vocab);
  json.member("document_begin", manifest.document_begin);
  json.member("document_end", manifest.document_end);
  json.member("tokens", manifest.tokens).member("documents", manifest.documents);
  json.member("text_bytes", manifest.text_bytes);
  json.key("tokenizer").begin_object();
  json.member("kind", manifest.tokenizer.kind).member("name", manifest.tokenizer.name);
  json.member("file", manifest.tokenizer.file).member("sha256", manifest.tokenizer.sha256);
  json.end_object();
  json.member("made_of", manifest.made_of);
  json.key("files").begin_array();
  for (const PreparedFile& file : manifest.files) {
    json.begin_object().member("name", file.name).member("tokens", file.tokens);
    json.member("documents", file.documents).member("sha256", file.sha256).end_object();
  }
  json.end_array().end_object();
  return json.take() + "\n";
}

Result<PreparedManifest> parse_prepared(std::string_view text, const std::string& path) {
  const auto mistake = [&](const std::string& what) {
    return fail(ErrorCode::kUserMistake, fmt::format("{}: {}", path, what));
  };
  const auto parsed = parse_strict_json(text, path);
  if (!parsed) return fail(ErrorCode::kUserMistake, parsed.error().what + ": prepare it anew");
  if (!parsed->is_object()) return mistake("expected a list of prepared data, found other JSON");
  Members members(parsed->get_object(), "");
  const std::uint64_t format = members.count("format", UINT32_MAX);
  if (!members.problem().empty()) return mistake("found no \"format\": prepare the data anew");
  if (format != kPreparedFormat)
    return mistake(fmt::format(
        "found format {}, expected {}; {}", format, kPreparedFormat,
        format > kPreparedFormat ? "it needs a newer swarmline" : "prepare the data anew"));
  PreparedManifest manifest;
  manifest.token_bytes = static_cast<std::uint32_t>(members.count("token_bytes", 4));
  manifest.vocab = static_cast<std::uint32_t>(members.count("vocab", kVocabMax));
  manifest.document_begin = members.token("document_begin");
  manifest.document_end = members.token("document_end");
  manifest.tokens = members.count("tokens", 1ULL << 60);
  manifest.documents = members.count("documents", 1ULL << 60);
  manifest.text_bytes = members.count("text_bytes", 1ULL << 62);
  manifest.made_of = members.sha256("made_of", true);
  if (manifest.token_bytes != 2 && manifest.token_bytes != 4) members.wrong("token_bytes");
  if (manifest.vocab == 0) members.wrong("vocab");
  std::string problem = members.problem();
  if (problem.empty()) problem = read_tokenizer(members.find("tokenizer"), manifest.tokenizer);
  if (problem.empty()) problem = read_files(members.find("files"), manifest);
  if (!problem.empty())
    return mistake(
        fmt::format("found no such {} as it should have: prepare the data anew", problem));
  return manifest;
}

bool is_prepared(const std::string& folder) {
  return file_exists(folder + "/" + std::string(kPreparedManifestName));
}

Result<PreparedManifest> read_prepared(const std::string& folder) {
  const std::string path =
      (std::filesystem::path(folder) / std::string(kPreparedManifestName)).string();
  const auto text = read_text_file(path, kPreparedManifestBytesMax);
  if (!text) return std::unexpected(text.error());
  return parse_prepared(*text, path);
}

}  // namespace swarmline
