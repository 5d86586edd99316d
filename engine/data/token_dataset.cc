#include "engine/data/token_dataset.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "base/check.h"
#include "base/log.h"
#include "base/rng.h"
#include "engine/data/token_file.h"

namespace swarmline {

namespace {

constexpr std::size_t kHeadBytes = 16;  // enough to tell compressed files

std::int32_t load_token(const std::byte* at, std::uint32_t token_bytes) {
  std::uint32_t token = 0;
  std::memcpy(&token, at, token_bytes);
  return static_cast<std::int32_t>(
      token);  // above 2^31: negative, refused as out of the vocabulary
}

}  // namespace

Result<TokenDataset> TokenDataset::open(const DatasetOptions& options) {
  SWARMLINE_CHECK(options.sequence > 0);
  TokenDataset dataset;
  dataset.sequence_ = options.sequence;
  dataset.byte_kind_ = options.data.kind == DataKind::kBytes;
  dataset.train_parts_ = data_parts(options.data);
  dataset.weights_ = options.data.weights;
  if (!options.fetched.files.empty()) {
    SWARMLINE_CHECK(options.vocab > 0 || dataset.byte_kind_);
    dataset.read_fetched_ = options.fetched.read;
    std::uint32_t number = 0;
    for (const FetchedFiles::File& file : options.fetched.files)
      dataset.add_fetched(file, number++);
  } else {
    SWARMLINE_TRY(dataset.open_files(options));
  }
  if (dataset.byte_kind_) dataset.separator_ = kEndOfDocument;
  SWARMLINE_TRY(dataset.find_vocab(options.vocab));
  SWARMLINE_TRY(dataset.split(options));
  return dataset;
}

Result<void> TokenDataset::open_files(const DatasetOptions& options) {
  DataPaths listed{.files = options.paths, .all_prepared = false};
  if (options.paths.empty()) {
    auto found = list_data_files(options.data, options.root);
    if (!found) return std::unexpected(std::move(found).error());
    listed = std::move(*found);
  }
  separator_ = listed.separator;
  prepared_vocab_ = listed.vocab;
  all_prepared_ = listed.all_prepared;
  for (const DataPath& file : listed.files) {
    SWARMLINE_TRY(check_below_root(file.path, options.root));
    SWARMLINE_TRY(add_file(options.data, file));
  }
  if (segments_.empty())
    return fail(ErrorCode::kUserMistake,
                "[data] files: all files that match are empty or beyond bytes_max");
  return {};
}

Result<void> TokenDataset::add_file(const DataSection& data, const DataPath& file) {
  const std::string& path = file.path;
  const bool trains = file.part < train_parts_;
  if (trains && data.bytes_max > 0 && file_bytes_ >= data.bytes_max) return {};
  if (segments_.size() >= kDataFilesMax) {
    return fail(ErrorCode::kUserMistake,
                fmt::format("[data] files name more than {} files: join them into fewer, larger "
                            "files",
                            kDataFilesMax));
  }
  const Result<std::shared_ptr<const MappedFile>> mapped = MappedFile::open(path);
  if (!mapped)
    return fail(ErrorCode::kUserMistake, fmt::format("[data] files: {}", mapped.error().what));
  const BytesView bytes = (*mapped)->bytes();
  if (bytes.empty() && file.from_glob) {
    log(LogLevel::kWarn, "{}: the file is empty; it is left out", path);
    return {};
  }
  if (bytes.empty())
    return fail(ErrorCode::kUserMistake, fmt::format("{}: the file is empty", path));
  const std::string_view head = byte_kind_ ? as_text(bytes).substr(0, kHeadBytes) : "";
  if (const auto packed = find_packed(path, head))
    return fail(
        ErrorCode::kUserMistake,
        fmt::format(
            "{}: this is {}, whose bytes are not text; {}", path, packed->what,
            packed->prepared
                ? fmt::format("make tokens of it by \"swarmline data prepare '{}' --out DIR\"",
                              path)
                : "unpack it first"));

  Segment segment{.file = *mapped, .bytes = bytes, .name = path, .part = file.part};
  if (!byte_kind_) {
    const TokenFormat format = file.token_bytes == 0   ? data.token_format
                               : file.token_bytes == 2 ? TokenFormat::kUint16
                                                       : TokenFormat::kUint32;
    const Result<TokenFileView> view = view_token_file(bytes, format, path);
    if (!view) return std::unexpected(view.error());
    segment.bytes = view->tokens;
    segment.token_bytes = view->token_bytes;
    segment.header_bytes = view->header_bytes;
  }
  if (trains && data.bytes_max > 0) {
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
               .token_bytes = file.token_bytes,
               .part = file.part});
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
    return fail(ErrorCode::kUserMistake,
                fmt::format("[model] vocab is {}: at most {}", model_vocab, kVocabMax));
  }
  vocab_ = model_vocab;
  if (byte_kind_) {
    if (vocab_ == 0) vocab_ = kByteVocab;
    if (vocab_ < kByteVocab) {
      return fail(ErrorCode::kUserMistake,
                  fmt::format("[model] vocab is {}, but [data] kind = \"bytes\" needs {} (256 "
                              "bytes and the end of a document)",
                              vocab_, kByteVocab));
    }
    return {};
  }
  if (vocab_ != 0 && vocab_ < prepared_vocab_)
    return fail(
        ErrorCode::kUserMistake,
        fmt::format("[model] vocab is {}, but the prepared data's tokenizer has {} tokens; write "
                    "vocab = 0 or at least {}",
                    vocab_, prepared_vocab_, prepared_vocab_));
  if (vocab_ == 0 && all_prepared_) vocab_ = prepared_vocab_;
  if (vocab_ != 0) return {};  // every read checks
  if (file_bytes_ > kVocabScanBytesMax) {
    return fail(ErrorCode::kUserMistake,
                fmt::format("set [model] vocab: {} bytes of tokens are too many to look for the "
                            "largest (up to {} are searched)",
                            file_bytes_, kVocabScanBytesMax));
  }
  std::uint32_t largest = prepared_vocab_ > 0 ? prepared_vocab_ - 1 : 0;
  for (const Segment& segment : segments_) {
    for (std::uint64_t i = 0; i < segment.tokens; ++i) {
      const std::byte* at = segment.bytes.data() + i * segment.token_bytes;
      const auto token = static_cast<std::uint32_t>(load_token(at, segment.token_bytes));
      if (token >= kVocabMax) {
        return fail(
            ErrorCode::kUserMistake,
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
  const double share = options.data.held_out;
  if (!(share >= 0 && share < 1)) {
    return fail(ErrorCode::kUserMistake,
                fmt::format("[data] held_out is {}: use a share of the sequences from 0 up to "
                            "but not including 1",
                            share));
  }
  parts_.resize(train_parts_ + (options.data.validation.empty() ? 0 : 1));
  for (const Segment& segment : segments_) {
    SWARMLINE_CHECK(segment.part < parts_.size());
    Part& part = parts_[segment.part];
    if (part.tokens == 0) part.first_token = segment.first_token;
    part.tokens += segment.tokens;
  }
  for (std::uint32_t number = 0; number < parts_.size(); ++number)
    SWARMLINE_TRY(split_part(options, number));
  if (held_out_ > 0)
    held_out_order_ = IndexPermutation(held_out_, Rng(options.seed).split("held-out order").seed());
  return {};
}

Result<void> TokenDataset::split_part(const DatasetOptions& options, std::uint32_t number) {
  Part& part = parts_[number];
  const DataSection& data = options.data;
  const bool validates = number == train_parts_;
  const std::string where = validates          ? "[data] validation"
                            : weights_.empty() ? "[data] files"
                            : number < data.files.size()
                                ? fmt::format("[data] files: \"{}\"", data.files[number])
                                : "[data] files";
  const std::uint64_t count = part.tokens == 0 ? 0 : (part.tokens - 1) / sequence_;
  if (count == 0) {
    return fail(ErrorCode::kUserMistake,
                fmt::format("{}{} {} tokens, and one sequence needs {} ([batch] "
                            "sequence + 1): use more data or shorter sequences",
                            where, weights_.empty() || validates ? " hold" : " holds", part.tokens,
                            std::uint64_t{sequence_} + 1));
  }
  const double share = data.validation.empty() ? data.held_out : 0;
  const auto wanted = static_cast<std::uint64_t>(std::llround(share * static_cast<double>(count)));
  part.held_out = share > 0 ? std::max<std::uint64_t>(wanted, 1) : 0;
  if (part.held_out >= count) {
    return fail(ErrorCode::kUserMistake,
                fmt::format("{} give{} {} sequences of {} tokens, and held_out = {} "
                            "leaves none to train on: use more data, shorter sequences or "
                            "held_out = 0",
                            where, weights_.empty() ? "" : "s", count, sequence_, share));
  }
  if (validates) part.held_out = count;
  Rng keys(options.seed);
  if (number > 0) keys = keys.split(number);
  part.split = IndexPermutation(count, keys.split("held-out split").seed());
  part.first_sequence = sequences_;
  part.first_held_out = held_out_;
  sequences_ += count;
  held_out_ += part.held_out;
  return {};
}

const TokenDataset::Part& TokenDataset::part_of(std::uint64_t sequence) const {
  return *(std::ranges::upper_bound(parts_, sequence, {}, &Part::first_sequence) - 1);
}

std::uint64_t TokenDataset::first_token_of(std::uint64_t sequence) const {
  const Part& part = part_of(sequence);
  return part.first_token + (sequence - part.first_sequence) * sequence_;
}

std::uint64_t TokenDataset::train(std::uint32_t number, std::uint64_t i) const {
  const Part& part = parts_[number];
  return part.first_sequence + part.split.apply(part.held_out + i);
}

std::uint64_t TokenDataset::held_out(std::uint64_t i) const {
  if (parts_.size() == 1) return parts_.front().split.apply(i);
  const std::uint64_t place = held_out_order_.apply(i);
  // The last of those that begin there: parts may hold out nothing.
  const Part& part = *(std::ranges::upper_bound(parts_, place, {}, &Part::first_held_out) - 1);
  return part.first_sequence + part.split.apply(place - part.first_held_out);
}

bool TokenDataset::is_held_out(std::uint64_t number) const {
  const Part& part = part_of(number);
  return part.split.inverse(number - part.first_sequence) < part.held_out;
}

std::vector<TokenDataset::UsedFile> TokenDataset::used_files() const {
  std::vector<UsedFile> files;
  files.reserve(segments_.size());
  for (const Segment& segment : segments_)
    files.push_back({.path = segment.file->path(),
                     .bytes = segment.file->bytes().size(),
                     .used = segment.header_bytes + segment.size,
                     .header_bytes = segment.header_bytes,
                     .token_bytes = segment.token_bytes,
                     .part = segment.part});
  return files;
}

std::vector<ByteRange> TokenDataset::ranges(std::uint64_t number) const {
  std::vector<ByteRange> ranges;
  std::uint64_t first = first_token_of(number);
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
  const std::uint64_t first = first_token_of(number);
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
      return fail(
          ErrorCode::kUserMistake,
          fmt::format(
              "{}: token {} at byte {} is outside the vocabulary of {}: raise [model] vocab, or is "
              "[data] token_format wrong?",
              segment.name, static_cast<std::uint32_t>(out[i]),
              segment.header_bytes + (first + i) * segment.token_bytes, vocab_));
    }
  }
  return {};
}

}  // namespace swarmline
