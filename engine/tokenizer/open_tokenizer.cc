#include "engine/tokenizer/open_tokenizer.h"

#include <filesystem>
#include <optional>

#include <fmt/format.h>

#include "base/bytes.h"
#include "engine/checkpoint/sha256.h"
#include "engine/store/files.h"
#include "engine/tokenizer/bpe_tokenizer.h"
#include "engine/tokenizer/byte_tokenizer.h"
#include "engine/tokenizer/sentencepiece_tokenizer.h"
#include "engine/tokenizer/tokenizer_json.h"

namespace swarmline {

namespace fs = std::filesystem;

namespace {

// As Hugging Face's folders and SentencePiece's users call them.
constexpr std::string_view kUsualNames[] = {"tokenizer.json", "tokenizer.model", "spiece.model"};
constexpr std::string_view kConfigName = "tokenizer_config.json";

std::optional<std::string> usual_file(const std::string& folder) {
  for (const std::string_view name : kUsualNames)
    if (std::string path = (fs::path(folder) / name).string(); file_exists(path)) return path;
  return std::nullopt;
}

Result<std::string> find_file(const std::string& name) {
  if (!file_exists(name))
    return fail(ErrorCode::kUserMistake,
                fmt::format("found no tokenizer \"{}\", expected \"bytes\", a tokenizer.json, a "
                            "SentencePiece model, or a folder with one of them",
                            name));
  if (!is_folder(name)) return name;
  if (auto path = usual_file(name)) return std::move(*path);
  return fail(ErrorCode::kUserMistake,
              fmt::format("{}: found neither tokenizer.json nor tokenizer.model in this folder; "
                          "name the tokenizer's file",
                          name));
}

Result<std::unique_ptr<Tokenizer>> read_tokenizer(const std::string& path,
                                                  const std::string& content) {
  const std::size_t first = content.find_first_not_of(" \t\r\n");
  if (first == std::string::npos || content[first] != '{')
    return make_sentencepiece_tokenizer(content, path);
  auto json = parse_tokenizer_json(content, path);
  if (!json) return std::unexpected(std::move(json).error());
  const std::string beside = (fs::path(path).parent_path() / kConfigName).string();
  std::string document_end;
  if (file_exists(beside)) {
    const auto config = read_text_file(beside, kTokenizerFileBytesMax);
    if (!config) return std::unexpected(config.error());
    document_end = document_end_of(*config);
  }
  auto made = BpeTokenizer::make(std::move(*json), path, document_end);
  if (!made) return std::unexpected(std::move(made).error());
  return std::unique_ptr<Tokenizer>(std::move(*made));
}

}  // namespace

bool holds_tokenizer(const std::string& folder) {
  return usual_file(folder).has_value();
}

Result<std::shared_ptr<const Tokenizer>> open_tokenizer(const std::string& name) {
  if (name == kByteTokenizerName) return std::shared_ptr<const Tokenizer>(make_byte_tokenizer());
  const Result<std::string> path = find_file(name);
  if (!path) return std::unexpected(path.error());
  const auto content = read_text_file(*path, kTokenizerFileBytesMax);
  if (!content) return std::unexpected(content.error());
  auto made = read_tokenizer(*path, *content);
  if (!made) return std::unexpected(std::move(made).error());
  (*made)->path_ = *path;
  (*made)->sha256_ = sha256_hex(as_bytes(*content));
  return std::shared_ptr<const Tokenizer>(std::move(*made));
}

}  // namespace swarmline
