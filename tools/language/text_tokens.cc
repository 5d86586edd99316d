#include "tools/language/text_tokens.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "base/limits.h"
#include "base/units.h"
#include "engine/config/load.h"
#include "engine/data/prepared_manifest.h"
#include "engine/huggingface/byte_tokenizer.h"
#include "engine/store/files.h"
#include "engine/store/json_writer.h"
#include "engine/tokenizer/open_tokenizer.h"

namespace swarmline {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kByteTokenizerBytesMax = 64 * kKiB;
constexpr std::string_view kBytes = "bytes";
// What transformers reads beside a tokenizer.
constexpr std::string_view kFilesBeside[] = {"tokenizer_config.json", "special_tokens_map.json",
                                             "added_tokens.json", "chat_template.jinja"};

// As files() says it of a model of bytes.
bool is_of_bytes(const std::string& folder) {
  const auto text = read_text_file(folder + "/tokenizer.json", kByteTokenizerBytesMax);
  return text && *text == byte_tokenizer_json();
}

Error nothing_says(const ModelSource& source) {
  return {
      ErrorCode::kUserMistake,
      fmt::format("{}: nothing beside it says what its {} tokens stand for; name its tokenizer: "
                  "--tokenizer FILE",
                  source.path(), source.model().shape.vocab)};
}

std::optional<std::int32_t> as_signed(const std::optional<std::uint32_t>& token) {
  if (!token) return std::nullopt;
  return static_cast<std::int32_t>(*token);
}

// The least that transformers wants to know beside the tokenizer's own file.
std::string tokenizer_config_json(const Tokenizer& tokenizer,
                                  const std::optional<std::int32_t>& begin,
                                  const std::optional<std::int32_t>& end) {
  const auto name_of = [&](std::int32_t token) {
    return tokenizer.decode_next(static_cast<std::uint32_t>(token), false, /*with_special=*/true);
  };
  JsonWriter json(2);
  json.begin_object().member("tokenizer_class", tokenizer.kind() == "sentencepiece"
                                                    ? "LlamaTokenizer"
                                                    : "PreTrainedTokenizerFast");
  if (begin) json.member("bos_token", name_of(*begin));
  if (end) json.member("eos_token", name_of(*end));
  json.member("clean_up_tokenization_spaces", false).end_object();
  return json.take() + "\n";
}

}  // namespace

std::optional<RunConfig> config_of_run(const ModelSource& source) {
  if (!source.manifest()) return std::nullopt;
  const auto run = std::filesystem::path(source.path()).parent_path().parent_path();
  const std::string path = (run / "config.toml").string();
  const auto text = read_text_file(path, Limits::config_file_bytes_max);
  if (!text) return std::nullopt;
  auto config = run_config_from_text(*text, path);
  if (!config) return std::nullopt;
  return std::move(*config);
}

TextTokens::TextTokens(std::shared_ptr<const Tokenizer> tokenizer)
    : tokenizer_(std::move(tokenizer)), end_(as_signed(tokenizer_->document_end())) {}

Result<TextTokens> TextTokens::open(const std::string& name) {
  auto tokenizer = open_tokenizer(name);
  if (!tokenizer) return std::unexpected(std::move(tokenizer).error());
  return TextTokens(std::move(*tokenizer));
}

// All prepared folders of a run were made with one tokenizer, or its vocabularies would not fit.
Result<TextTokens> TextTokens::of_run(const ModelSource& source, const RunConfig& run) {
  if (run.data.kind == DataKind::kBytes) return open(std::string(kBytes));
  for (const std::string& entry : run.data.files) {
    if (!is_prepared(entry)) continue;
    const auto prepared = read_prepared(entry);
    if (!prepared) return std::unexpected(prepared.error());
    auto tokens = open(tokenizer_path(entry, prepared->tokenizer));
    if (!tokens) return tokens;
    if (prepared->document_end) tokens->end_ = as_signed(prepared->document_end);
    tokens->begin_ = as_signed(prepared->document_begin);
    return tokens;
  }
  return std::unexpected(nothing_says(source));
}

Result<TextTokens> TextTokens::of(const ModelSource& source, const std::string& tokenizer) {
  const auto made = [&]() -> Result<TextTokens> {
    if (!tokenizer.empty()) return open(tokenizer);
    if (source.hf() && holds_tokenizer(source.path()))
      return open(is_of_bytes(source.path()) ? std::string(kBytes) : source.path());
    if (const auto run = config_of_run(source)) return of_run(source, *run);
    if (source.model().shape.vocab == kByteEndToken + 1) return open(std::string(kBytes));
    return std::unexpected(nothing_says(source));
  }();
  if (!made) return made;
  const std::uint32_t vocabulary = made->tokenizer_->vocabulary();
  if (made->tokenizer_->kind() != kBytes && vocabulary > source.model().shape.vocab)
    return fail(
        ErrorCode::kUserMistake,
        fmt::format("{}: the model has {} tokens, and its tokenizer {} has {}; name the one "
                    "that it was trained with: --tokenizer FILE",
                    source.path(), source.model().shape.vocab, made->tokenizer_->path(),
                    vocabulary));
  return made;
}

Result<std::vector<std::int32_t>> TextTokens::encode(std::string_view text) const {
  std::vector<std::uint32_t> tokens;
  SWARMLINE_TRY(tokenizer_->make_encoder({})->encode(text, /*goes_on=*/false, tokens));
  return std::vector<std::int32_t>(tokens.begin(), tokens.end());
}

Result<std::vector<HfExportOptions::File>> TextTokens::files() const {
  if (tokenizer_->kind() == kBytes)
    return std::vector<HfExportOptions::File>{
        {"tokenizer.json", byte_tokenizer_json()},
        {"tokenizer_config.json", byte_tokenizer_config_json()}};
  const fs::path from(tokenizer_->path());
  auto content = read_text_file(from.string(), kTokenizerFileBytesMax);
  if (!content) return std::unexpected(std::move(content).error());
  const bool bpe = tokenizer_->kind() == "bpe";
  std::vector<HfExportOptions::File> files{
      {bpe ? "tokenizer.json" : "tokenizer.model", std::move(*content)}};
  bool has_config = false;
  for (const std::string_view name : kFilesBeside) {
    const std::string path = (from.parent_path() / name).string();
    if (!file_exists(path)) continue;
    auto beside = read_text_file(path, kTokenizerFileBytesMax);
    if (!beside) return std::unexpected(std::move(beside).error());
    has_config = has_config || name == kFilesBeside[0];
    files.push_back({std::string(name), std::move(*beside)});
  }
  if (!has_config)
    files.push_back({std::string(kFilesBeside[0]),
                     tokenizer_config_json(*tokenizer_, document_begin(), document_end())});
  return files;
}

std::string TextTokens::text_of(std::int32_t token, bool begins) const {
  if (token < 0) return {};
  return tokenizer_->decode_next(static_cast<std::uint32_t>(token), begins, /*with_special=*/false);
}

}  // namespace swarmline
