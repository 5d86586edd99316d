#include "tools/prepare/prepare.h"

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <utility>

#include <fmt/format.h>

#include "base/bytes.h"
#include "engine/checkpoint/sha256.h"
#include "engine/store/files.h"
#include "engine/store/parallel.h"
#include "engine/store/run_lock.h"
#include "tools/prepare/prepare_state.h"
#include "tools/prepare/token_shards.h"

namespace swarmline {

namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t kNarrowVocabulary = 65536;
constexpr std::size_t kBatchBlocksPerThread = 1024;  // small documents are blocks, too
constexpr std::size_t kHashedAtOnce = 16 * kMiB;

std::string path_in(const std::string& folder, std::string_view name) {
  return (fs::path(folder) / name).string();
}

// Changes with whatever changes the tokens or the files that they are in.
std::string made_of(const PrepareOptions& options) {
  Sha256 hash;
  const auto add = [&](const std::string& text) {
    hash.update(as_bytes(fmt::format("{} {}\n", text.size(), text)));
  };
  const auto token = [](std::optional<std::uint32_t> id) {
    return id ? fmt::format("{}", *id) : std::string("none");
  };
  add(fmt::format("{} {} {}", options.tokenizer->kind(), options.tokenizer->vocabulary(),
                  options.tokenizer->sha256()));
  add(fmt::format("{} {} {} {} {}", token(options.rules.begin), token(options.rules.end),
                  options.rules.special_as_text, options.rules.skip_bad_lines,
                  options.shard_tokens));
  add(options.rules.text_key);
  for (const TextInput& input : options.inputs) {
    add(fmt::format("{} {}", static_cast<int>(input.kind), input.path));
    add(input.path == kStandardInput ? "" : file_stamp(input.path).value_or("gone"));
  }
  return hash.finish_hex();
}

class Preparation {
 public:
  explicit Preparation(const PrepareOptions& options) : options_(options) {}

  Result<Prepared> run();

 private:
  struct Batch {
    std::vector<TextBlock> blocks;
    std::vector<EncodedBlock> made;
  };

  Result<bool> look_at_folder();
  Result<void> begin_anew();
  Result<bool> is_whole(const PreparedFile& file, std::uint32_t token_bytes) const;
  PreparedManifest empty_manifest() const;
  Result<void> read(TextBlocks& blocks, Batch& batch);
  Result<void> encode(const TextBlock& block, EncodedBlock& made);
  Result<void> make(TextBlocks& blocks, TokenShards& shards);
  void warn(const std::string& line) const {
    if (options_.warn) options_.warn(line);
  }
  void tell(const TextBlocks& blocks);

  const PrepareOptions& options_;
  std::string made_of_;
  PrepareState state_;
  Prepared result_;
  PrepareProgress progress_;
  std::mutex mutex_;  // of idle_: encoders are made as threads need them
  std::vector<std::unique_ptr<BlockEncoder>> idle_;
};

PreparedManifest Preparation::empty_manifest() const {
  const Tokenizer& tokenizer = *options_.tokenizer;
  const std::string& path = tokenizer.path();
  return {.token_bytes = tokenizer.vocabulary() <= kNarrowVocabulary ? 2U : 4U,
          .vocab = tokenizer.vocabulary(),
          .document_begin = options_.rules.begin,
          .document_end = options_.rules.end,
          .tokenizer = {.kind = tokenizer.kind(),
                        .name = options_.tokenizer_name,
                        .file = path.empty() ? "" : fs::path(path).filename().string(),
                        .sha256 = tokenizer.sha256()},
          .made_of = made_of_};
}

Result<bool> Preparation::is_whole(const PreparedFile& file, std::uint32_t token_bytes) const {
  const auto mapped = MappedFile::open(path_in(options_.folder, file.name));
  if (!mapped) return false;
  const BytesView bytes = (*mapped)->bytes();
  if (bytes.size() != file.tokens * token_bytes) return false;
  Sha256 hash;
  for (std::size_t at = 0; at < bytes.size(); at += kHashedAtOnce)
    hash.update(bytes.subspan(at, std::min(kHashedAtOnce, bytes.size() - at)));
  return hash.finish_hex() == file.sha256;
}

// True: all of it is there. Otherwise `state_` says where to go on.
Result<bool> Preparation::look_at_folder() {
  const std::string& folder = options_.folder;
  if (is_prepared(folder)) {
    auto there = read_prepared(folder);
    if (!there) return std::unexpected(std::move(there).error());
    if (there->made_of != made_of_)
      return fail(ErrorCode::kUserMistake,
                  fmt::format("{}: found tokens that were made of other inputs or with other "
                              "settings; name another folder by --out, or remove this one",
                              folder));
    result_.manifest = std::move(*there);
    return true;
  }
  const std::string path = path_in(folder, kPrepareStateName);
  if (!file_exists(path)) return false;
  const auto text = read_text_file(path, kPreparedManifestBytesMax);
  if (!text) return std::unexpected(text.error());
  auto state = parse_prepare_state(*text, path);
  if (!state) return std::unexpected(std::move(state).error());
  const bool from_stream = std::ranges::any_of(
      options_.inputs, [](const TextInput& input) { return input.path == kStandardInput; });
  if (state->made.made_of != made_of_ || from_stream) {
    warn(fmt::format("{}: what was begun there had other inputs or settings; it begins anew",
                     folder));
    return false;
  }
  for (const PreparedFile& file : state->made.files) {
    const auto whole = is_whole(file, state->made.token_bytes);
    if (!whole) return std::unexpected(whole.error());
    if (*whole) continue;
    warn(fmt::format("{}: {} was changed since; it begins anew", folder, file.name));
    return false;
  }
  state_ = std::move(*state);
  result_.kept_tokens = state_.made.tokens;
  return false;
}

// Takes files of an earlier beginning away; those of others stay.
Result<void> Preparation::begin_anew() {
  const auto names = list_folder(options_.folder);
  if (!names) return std::unexpected(names.error());
  for (const std::string& name : *names) {
    const bool ours = (name.starts_with("tokens-") &&
                       (name.ends_with(".bin") || name.ends_with(".bin.partial"))) ||
                      name == kPrepareStateName;
    std::error_code ignored;  // what stays is written over
    if (ours) fs::remove(path_in(options_.folder, name), ignored);
  }
  state_ = {.made = empty_manifest(), .next = {}};
  return {};
}

Result<void> Preparation::read(TextBlocks& blocks, Batch& batch) {
  batch = {};
  const std::uint64_t bytes_max = options_.batch_bytes * options_.threads;
  const std::size_t blocks_max = kBatchBlocksPerThread * options_.threads;
  for (std::uint64_t bytes = 0; bytes < bytes_max && batch.blocks.size() < blocks_max;) {
    auto block = blocks.next();
    if (!block) return std::unexpected(std::move(block).error());
    if (!*block) break;
    bytes += (*block)->text.size();
    batch.blocks.push_back(std::move(**block));
  }
  batch.made.resize(batch.blocks.size());
  return {};
}

Result<void> Preparation::encode(const TextBlock& block, EncodedBlock& made) {
  std::unique_ptr<BlockEncoder> encoder;
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      encoder = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  if (!encoder) encoder = std::make_unique<BlockEncoder>(*options_.tokenizer, options_.rules);
  auto encoded = encoder->encode(block, options_.inputs[block.input]);
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(encoder));
  if (!encoded) return std::unexpected(std::move(encoded).error());
  made = std::move(*encoded);
  return {};
}

void Preparation::tell(const TextBlocks& blocks) {
  progress_.bytes = blocks.consumed();
  if (options_.progress) options_.progress(progress_);
}

// While one batch is encoded, the next is read.
Result<void> Preparation::make(TextBlocks& blocks, TokenShards& shards) {
  Batch now, next;
  SWARMLINE_TRY(read(blocks, now));
  while (!now.blocks.empty()) {
    SWARMLINE_TRY(for_each_at_once(now.blocks.size() + 1, options_.threads,
                                   [&](std::size_t i) -> Result<void> {
                                     if (i == 0) return read(blocks, next);
                                     return encode(now.blocks[i - 1], now.made[i - 1]);
                                   }));
    for (std::size_t i = 0; i < now.blocks.size(); ++i) {
      const EncodedBlock& made = now.made[i];
      SWARMLINE_TRY(shards.add(made, now.blocks[i].after));
      progress_.tokens += made.tokens.size();
      progress_.documents += made.documents;
      progress_.text_bytes += made.text_bytes;
      result_.replaced += made.replaced;
      result_.skipped += made.skipped;
    }
    tell(blocks);
    for (const std::string& line : blocks.take_warnings()) warn(line);
    now = std::move(next);
  }
  for (const std::string& line : blocks.take_warnings()) warn(line);
  return {};
}

Result<Prepared> Preparation::run() {
  const std::string& folder = options_.folder;
  made_of_ = made_of(options_);
  SWARMLINE_TRY(make_folders(folder));
  RunLock lock(path_in(folder, "prepare.lock"));
  const auto locked = lock.try_acquire("swarmline data prepare");
  if (!locked) return std::unexpected(locked.error());
  if (!*locked)
    return fail(ErrorCode::kRefused,
                fmt::format("{}: another process prepares this folder; wait for it, or name "
                            "another by --out",
                            folder));
  const auto there = look_at_folder();
  if (!there) return std::unexpected(there.error());
  if (*there) {
    result_.was_there = true;
    return result_;
  }
  if (result_.kept_tokens == 0) SWARMLINE_TRY(begin_anew());
  // The tokenizer first: tokens without it are of no use.
  if (const std::string& path = options_.tokenizer->path(); !path.empty()) {
    const auto content = read_text_file(path, kTokenizerFileBytesMax);
    if (!content) return std::unexpected(content.error());
    SWARMLINE_TRY(
        write_text_file_atomically(path_in(folder, state_.made.tokenizer.file), *content));
  }
  progress_ = {.text_bytes = state_.made.text_bytes,
               .documents = state_.made.documents,
               .tokens = state_.made.tokens};
  for (const TextInput& input : options_.inputs) progress_.bytes_all += input.bytes;
  TextBlocks blocks(options_.inputs, options_.tokenizer->cuts(), state_.next,
                    {.python = options_.python, .column = options_.rules.text_key});
  TokenShards shards(folder, options_.shard_tokens, state_);
  SWARMLINE_TRY(make(blocks, shards));
  if (progress_.tokens == 0)
    return fail(ErrorCode::kUserMistake,
                "the inputs hold no text, so that there are no tokens to write; name other ones");
  auto manifest = shards.finish();
  if (!manifest) return std::unexpected(std::move(manifest).error());
  result_.manifest = std::move(*manifest);
  return result_;
}

}  // namespace

Result<Prepared> prepare_data(const PrepareOptions& options) {
  return Preparation(options).run();
}

}  // namespace swarmline
