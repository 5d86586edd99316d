#include "engine/data/token_dataset.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include <fmt/format.h>

#include "base/check.h"
#include "base/rng.h"
#include "engine/data/token_file.h"

namespace swarmline {

namespace {

std::int32_t load_token(const std::byte* at, std::uint32_t token_bytes) {
  std::uint32_t token = 0;
  std::memcpy(&token, at, token_bytes);
  return static_cast<std::int32_t>(
      token);  // above 2^31: negative, refused as out of the vocabulary
}

std::unexpected<Error> mistake(std::string what) {
  return fail(ErrorCode::kUserMistake, std::move(what));
}

}  // namespace

Result<TokenDataset> TokenDataset::open(const DatasetOptions& options) {
  SWARMLINE_CHECK(options.sequence > 0);
  TokenDataset dataset;
  dataset.sequence_ = options.sequence;
  dataset.byte_kind_ = options.data.kind == DataKind::kBytes;
  if (!options.fetched.files.empty()) {
    SWARMLINE_CHECK(options.vocab > 0 || dataset.byte_kind_);
    dataset.read_fetched_ = options.fetched.read;
    std::uint32_t number = 0;
    for (const FetchedFiles::File& file : options.fetched.files)
      dataset.add_fetched(file, number++);
  } else {
    SWARMLINE_TRY(options.paths.empty() ? dataset.open_files(options)
                                        : dataset.open_paths(options));
  }
  SWARMLINE_TRY(dataset.find_vocab(options.vocab));
  SWARMLINE_TRY(dataset.split(options));
  return dataset;
}

// Whose config names the files may be somebody who should not see them.
Result<void> TokenDataset::check_below(const std::string& path, const std::string& root) {
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

namespace {
// The folder, or the file, that all matches lie below, or are.
std::string before_wildcards(const std::string& pattern) {
  const std::string fixed =
      pattern.substr(0, std::min(pattern.find_first_of("*?["), pattern.size()));
  if (fixed.size() == pattern.size()) return fixed;
  const std::size_t end = fixed.rfind('/');
  if (end == std::string::npos) return ".";
  return end == 0 ? "/" : fixed.substr(0, end);
}
}  // namespace

Result<void> TokenDataset::open_files(const DatasetOptions& options) {
  const DataSection& data = options.data;
  if (data.files.empty()) {
    return mistake("[data] files is empty: name at least one file or glob to train on");
  }
  std::set<std::string> seen;
  for (const std::string& pattern : data.files) {
    SWARMLINE_TRY(check_below(before_wildcards(pattern), options.root));
    Result<std::vector<std::string>> paths = glob_files(pattern, kDataFilesMax);
    if (!paths && paths.error().code == ErrorCode::kRefused) {
      return mistake(
          fmt::format("[data] files: {}: join them into fewer, larger files", paths.error().what));
    }
    if (!paths) return std::unexpected(paths.error());
    if (paths->empty()) {
      return mistake(is_folder(pattern)
                         ? fmt::format("[data] files: \"{0}\" is a folder: name the files in it, "
                                       "for example \"{0}/**\"",
                                       pattern)
                         : fmt::format("[data] files: no file matches \"{}\": check the path "
                                       "(relative ones start at the current folder)",
                                       pattern));
    }
    for (const std::string& path : *paths) {
      if (!seen.insert(path).second) continue;
      SWARMLINE_TRY(check_below(path, options.root));
      if (data.bytes_max > 0 && file_bytes_ >= data.bytes_max) return {};
      SWARMLINE_TRY(add_file(data, path, has_wildcard(pattern)));
    }
  }
  if (segments_.empty())
    return mistake("[data] files: all files that match are empty or beyond bytes_max");
  return {};
}

Result<void> TokenDataset::open_paths(const DatasetOptions& options) {
  for (const std::string& path : options.paths) {
    SWARMLINE_TRY(check_below(path, options.root));
    SWARMLINE_TRY(add_file(options.data, path, false));
  }
  return {};
}

Result<void> TokenDataset::add_file(const DataSection& data, const std::string& path,
                                    bool from_glob) {
  if (segments_.size() >= kDataFilesMax) {
    return mistake(
        fmt::format("[data] files name more than {} files: join them into fewer, larger "
                    "files",
                    kDataFilesMax));
  }
  const Result<std::shared_ptr<const MappedFile>> file = MappedFile::open(path);
  if (!file) return mistake(fmt::format("[data] files: {}", file.error().what));
  const BytesView bytes = (*file)->bytes();
  if (bytes.empty() && from_glob) return {};
  if (bytes.empty()) return mistake(fmt::format("{}: the file is empty", path));

  Segment segment{.file = *file, .bytes = bytes, .name = path};
  if (!byte_kind_) {
    const Result<TokenFileView> view = view_token_file(bytes, data.token_format, path);
    if (!view) return std::unexpected(view.error());
    segment.bytes = view->tokens;
    segment.token_bytes = view->token_bytes;
    segment.header_bytes = view->header_bytes;
  }
  if (data.bytes_max > 0) {
    const std::uint64_t left = data.bytes_max - file_bytes_;
    const std::uint64_t used = std::min<std::uint64_t>(segment.bytes.size(), left);
    segment.bytes = segment.bytes.first(used - used % segment.token_bytes);
  }
  segment.size = segment.bytes.size();
  add_segment(std::move(segment));
  return {};
}

void TokenDataset::add_fetched(const FetchedFiles::File& file, std::uint32_t number) {
  add_segment({.file = nullptr,
               .bytes = {},
               .name = file.name,
               .size = file.used - file.header_bytes,
               .number = number,
               .header_bytes = file.header_bytes,
               .token_bytes = file.token_bytes});
}

void TokenDataset::add_segment(Segment segment) {
  token_bytes_ = std::max(token_bytes_, segment.token_bytes);
  file_bytes_ += segment.size;
  segment.first_token = tokens_;
  segment.tokens = segment.size / segment.token_bytes + (byte_kind_ ? 1 : 0);
  tokens_ += segment.tokens;
  if (segment.tokens > 0) segments_.push_back(std::move(segment));
}

Result<void> TokenDataset::find_vocab(std::uint32_t model_vocab) {
  if (model_vocab > kVocabMax) {
    return mistake(fmt::format("[model] vocab is {}: at most {}", model_vocab, kVocabMax));
  }
  vocab_ = model_vocab;
  if (byte_kind_) {
    if (vocab_ == 0) vocab_ = kByteVocab;
    if (vocab_ < kByteVocab) {
      return mistake(
          fmt::format("[model] vocab is {}, but [data] kind = \"bytes\" needs {} (256 "
                      "bytes and the end of a document)",
                      vocab_, kByteVocab));
    }
    return {};
  }
  if (vocab_ != 0) return {};  // every read checks
  if (file_bytes_ > kVocabScanBytesMax) {
    return mistake(
        fmt::format("set [model] vocab: {} bytes of tokens are too many to look for the "
                    "largest (up to {} are searched)",
                    file_bytes_, kVocabScanBytesMax));
  }
  std::uint32_t largest = 0;
  for (const Segment& segment : segments_) {
    for (std::uint64_t i = 0; i < segment.tokens; ++i) {
      const std::byte* at = segment.bytes.data() + i * segment.token_bytes;
      const auto token = static_cast<std::uint32_t>(load_token(at, segment.token_bytes));
      if (token >= kVocabMax) {
        return mistake(
            fmt::format("{}: token {} at byte {} is no token number: is [data] "
                        "token_format right?",
                        segment.name, token, segment.header_bytes + i * segment.token_bytes));
      }
      largest = std::max(largest, token);
    }
  }
  vocab_ = largest + 1;
  return {};
}

Result<void> TokenDataset::split(const DatasetOptions& options) {
  const std::uint64_t count = tokens_ == 0 ? 0 : (tokens_ - 1) / sequence_;
  if (count == 0) {
    return mistake(
        fmt::format("[data] files hold {} tokens, and one sequence needs {} ([batch] "
                    "sequence + 1): use more data or shorter sequences",
                    tokens_, std::uint64_t{sequence_} + 1));
  }
  const double share = options.data.held_out;
  if (!(share >= 0 && share < 1)) {
    return mistake(
        fmt::format("[data] held_out is {}: use a share of the sequences from 0 up to "
                    "but not including 1",
                    share));
  }
  const auto wanted = static_cast<std::uint64_t>(std::llround(share * static_cast<double>(count)));
  held_out_ = share > 0 ? std::max<std::uint64_t>(wanted, 1) : 0;
  if (held_out_ >= count) {
    return mistake(
        fmt::format("[data] files give {} sequences of {} tokens, and held_out = {} "
                    "leaves none to train on: use more data, shorter sequences or "
                    "held_out = 0",
                    count, sequence_, share));
  }
  split_ = IndexPermutation(count, Rng(options.seed).split("held-out split").seed());
  return {};
}

std::vector<TokenDataset::UsedFile> TokenDataset::used_files() const {
  std::vector<UsedFile> files;
  files.reserve(segments_.size());
  for (const Segment& segment : segments_)
    files.push_back({.path = segment.file->path(),
                     .bytes = segment.file->bytes().size(),
                     .used = segment.header_bytes + segment.size,
                     .header_bytes = segment.header_bytes,
                     .token_bytes = segment.token_bytes});
  return files;
}

std::vector<ByteRange> TokenDataset::ranges(std::uint64_t number) const {
  std::vector<ByteRange> ranges;
  std::uint64_t first = number * sequence_;
  std::uint64_t left = std::uint64_t{sequence_} + 1;
  auto segment = std::ranges::upper_bound(segments_, first, {}, &Segment::first_token) - 1;
  for (; left > 0; ++segment) {
    const std::uint64_t within = first - segment->first_token;
    const std::uint64_t count = std::min(left, segment->tokens - within);
    const std::uint64_t from = std::min(within * segment->token_bytes, segment->size);
    const std::uint64_t to = std::min((within + count) * segment->token_bytes, segment->size);
    if (!segment->file && to > from)
      ranges.push_back({segment->number, segment->header_bytes + from, to - from});
    first += count;
    left -= count;
  }
  return ranges;
}

Result<void> TokenDataset::read(std::uint64_t number, std::span<std::int32_t> tokens,
                                std::span<std::int32_t> targets) const {
  SWARMLINE_CHECK(number < sequences());
  SWARMLINE_CHECK(tokens.size() == sequence_ && targets.size() == sequence_);
  const std::uint64_t first = number * sequence_;
  SWARMLINE_TRY(read_stream(first, tokens));
  std::memcpy(targets.data(), tokens.data() + 1, (tokens.size() - 1) * sizeof(std::int32_t));
  return read_stream(first + sequence_, targets.last(1));
}

Result<void> TokenDataset::read_stream(std::uint64_t first, std::span<std::int32_t> out) const {
  auto segment = std::ranges::upper_bound(segments_, first, {}, &Segment::first_token) - 1;
  while (!out.empty()) {
    const std::uint64_t within = first - segment->first_token;
    const std::size_t count = std::min<std::uint64_t>(out.size(), segment->tokens - within);
    SWARMLINE_TRY(copy_tokens(*segment, within, out.first(count)));
    out = out.subspan(count);
    first += count;
    ++segment;
  }
  return {};
}

Result<void> TokenDataset::copy_tokens(const Segment& segment, std::uint64_t first,
                                       std::span<std::int32_t> out) const {
  const std::uint64_t from = first * segment.token_bytes;
  const std::uint64_t size =
      std::min<std::uint64_t>(out.size() * segment.token_bytes, segment.size - from);
  std::vector<std::byte> room;
  BytesView bytes;
  if (segment.file) {
    bytes = segment.bytes.subspan(from, size);
  } else {
    room.resize(size);
    if (size > 0)
      SWARMLINE_TRY(read_fetched_({segment.number, segment.header_bytes + from, size}, room));
    bytes = room;
  }
  if (byte_kind_) {
    for (std::size_t i = 0; i < bytes.size(); ++i) out[i] = std::to_integer<std::int32_t>(bytes[i]);
    if (bytes.size() < out.size()) out.back() = kEndOfDocument;
    return {};
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = load_token(bytes.data() + i * segment.token_bytes, segment.token_bytes);
    if (static_cast<std::uint32_t>(out[i]) >= vocab_) {
      return mistake(fmt::format(
          "{}: token {} at byte {} is outside the vocabulary of {}: raise [model] vocab, or is "
          "[data] token_format wrong?",
          segment.name, static_cast<std::uint32_t>(out[i]),
          segment.header_bytes + (first + i) * segment.token_bytes, vocab_));
    }
  }
  return {};
}

}  // namespace swarmline
