#include "tools/prepare/token_shards.h"

#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "base/bytes.h"
#include "engine/data/token_dataset.h"

namespace swarmline {

namespace {

std::string in_folder(const std::string& folder, std::string_view name) {
  return (std::filesystem::path(folder) / name).string();
}

// Little-endian, as this machine's.
template <typename Token>
std::vector<Token> narrowed(const std::vector<std::uint32_t>& tokens) {
  return {tokens.begin(), tokens.end()};
}

}  // namespace

TokenShards::TokenShards(std::string folder, std::uint64_t shard_tokens, PrepareState state)
    : folder_(std::move(folder)),
      shard_tokens_(shard_tokens),
      state_(std::move(state)),
      after_(state_.next) {}

Result<void> TokenShards::add(const EncodedBlock& block, const InputPlace& after) {
  PreparedManifest& made = state_.made;
  if (!file_) {
    if (made.files.size() >= kDataFilesMax)
      return fail(ErrorCode::kUserMistake,
                  fmt::format("more than {} files of tokens; choose a larger --shard-tokens",
                              kDataFilesMax));
    open_ = {.name = fmt::format("tokens-{:05}.u{}.bin", made.files.size(), made.token_bytes * 8)};
    auto file = AtomicFile::create(in_folder(folder_, open_.name));
    if (!file) return std::unexpected(std::move(file).error());
    file_ = std::move(*file);
    hash_ = Sha256();
    open_text_bytes_ = 0;
  }
  const auto write = [&](const auto& tokens) {
    const BytesView bytes = std::as_bytes(std::span(tokens));
    hash_.update(bytes);
    return file_->append(bytes);
  };
  SWARMLINE_TRY(made.token_bytes == 2 ? write(narrowed<std::uint16_t>(block.tokens))
                                      : write(block.tokens));
  open_.tokens += block.tokens.size();
  open_.documents += block.documents;
  open_text_bytes_ += block.text_bytes;
  after_ = after;
  return open_.tokens >= shard_tokens_ ? end_file(after) : Result<void>();
}

Result<void> TokenShards::end_file(const InputPlace& after) {
  SWARMLINE_TRY(file_->finish());
  file_.reset();
  open_.sha256 = hash_.finish_hex();
  state_.made.tokens += open_.tokens;
  state_.made.documents += open_.documents;
  state_.made.text_bytes += open_text_bytes_;
  state_.made.files.push_back(std::exchange(open_, {}));
  state_.next = after;
  return write_text_file_atomically(in_folder(folder_, kPrepareStateName), to_json(state_));
}

Result<PreparedManifest> TokenShards::finish() {
  if (file_ && open_.tokens > 0) SWARMLINE_TRY(end_file(after_));
  file_.reset();
  SWARMLINE_TRY(
      write_text_file_atomically(in_folder(folder_, kPreparedManifestName), to_json(state_.made)));
  std::error_code gone;
  std::filesystem::remove(in_folder(folder_, kPrepareStateName), gone);
  return state_.made;
}

}  // namespace swarmline
