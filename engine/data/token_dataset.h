// The tokens a run trains on, as numbered sequences of fixed length.
//   Stream:    all files one after another (in the order of `[data] files`, matches of a glob
//              sorted, a file once). kind "bytes": each file is one document, its bytes are tokens
//              0..255, and kEndOfDocument follows it. kind "tokens": token files as they are.
//   Sequence:  number n is tokens [n S, n S + S] of the stream: S inputs, and S targets one further
//              on. Neighbours share one token; the tail too short for a sequence is left out.
//   Split:     a seeded permutation of all sequences; its first held_out_sequences() are held out,
//              the others train. Held-out windows may share their boundary token with training
//              ones.
//   Fetched:   where a machine has no files, their sizes are known and what reads their bytes is
//              given: it must have what is read (ranges()) when that is read.
//   Ownership: files are mapped, never copied whole. Thread: immutable; read() from any thread.
//   Errors:    kUserMistake with the file (and for a token, its offset) in the sentence; kIo.
//   Bounds:    kDataFilesMax files; a vocabulary is looked for in at most kVocabScanBytesMax.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "engine/config/run_config.h"
#include "engine/data/permutation.h"
#include "engine/store/files.h"

namespace swarmline {

inline constexpr std::int32_t kEndOfDocument = 256;  // kind "bytes"
inline constexpr std::uint32_t kByteVocab = 257;
inline constexpr std::uint32_t kVocabMax = 1U << 24;  // token numbers
inline constexpr std::size_t kDataFilesMax = 32768;   // each is one mapping; Linux allows 65530
inline constexpr std::uint64_t kVocabScanBytesMax = 4 * kGiB;

struct ByteRange {  // of a file, by its place in the stream
  std::uint32_t file = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  bool operator==(const ByteRange&) const = default;
};

struct FetchedFiles {
  struct File {
    std::string name;                // for people
    std::uint64_t used = 0;          // bytes, header and tokens
    std::uint64_t header_bytes = 0;  // at most `used`
    std::uint32_t token_bytes = 1;   // 1 | 2 | 4
  };
  std::vector<File> files;
  std::function<Result<void>(const ByteRange&, std::span<std::byte>)> read;
};

struct DatasetOptions {
  DataSection data;
  std::uint32_t sequence = 0;  // tokens, > 0
  std::uint64_t seed = 0;      // the run's
  std::uint32_t vocab = 0;     // the model's; 0: what the data needs (tokens: by reading them all)
  std::string root;            // nothing is read that does not lie below it; empty: anything is
  std::vector<std::string> paths = {};  // these files in this order, whatever `data` names
  FetchedFiles fetched = {};            // with files: these instead, and `vocab` is known
};

class TokenDataset {
 public:
  static Result<TokenDataset> open(const DatasetOptions& options);

  // The model's, if it was given, else what the data needs.
  std::uint32_t vocab() const { return vocab_; }
  std::uint32_t sequence() const { return sequence_; }  // tokens
  std::uint64_t tokens() const { return tokens_; }      // of the stream
  std::uint64_t file_bytes() const { return file_bytes_; }
  std::uint32_t token_bytes() const { return token_bytes_; }  // in the files, the widest
  std::size_t files() const { return segments_.size(); }
  std::uint64_t sequences() const { return split_.size(); }
  std::uint64_t held_out_sequences() const { return held_out_; }
  std::uint64_t train_sequences() const { return sequences() - held_out_; }  // >= 1

  // Sequence numbers of the i-th of each part.
  std::uint64_t held_out(std::uint64_t i) const { return split_.apply(i); }
  std::uint64_t train(std::uint64_t i) const { return split_.apply(held_out_ + i); }
  bool is_held_out(std::uint64_t number) const { return split_.inverse(number) < held_out_; }

  // Both spans have sequence() elements; number < sequences(). kUserMistake: a token >= vocab().
  Result<void> read(std::uint64_t number, std::span<std::int32_t> tokens,
                    std::span<std::int32_t> targets) const;

  // What read() reads of that sequence, in the order of the stream; of fetched files alone.
  std::vector<ByteRange> ranges(std::uint64_t number) const;

  struct UsedFile {
    std::string path;
    std::uint64_t bytes = 0;  // of the file
    std::uint64_t used = 0;   // of these, from the beginning: header and tokens
    std::uint64_t header_bytes = 0;
    std::uint32_t token_bytes = 1;
  };
  std::vector<UsedFile> used_files() const;  // in the order of the stream

 private:
  // A file's part of the stream: [first_token, first_token + tokens), an end-of-document included.
  struct Segment {
    std::shared_ptr<const MappedFile> file;  // null: fetched
    BytesView bytes;                         // the tokens in the file
    std::string name;                        // for people
    std::uint64_t size = 0;                  // of the tokens in the file, bytes
    std::uint32_t number = 0;                // of fetched files
    std::uint64_t header_bytes = 0;          // before them
    std::uint32_t token_bytes = 1;
    std::uint64_t first_token = 0;
    std::uint64_t tokens = 0;
  };

  TokenDataset() : split_(1, 0) {}
  Result<void> open_files(const DatasetOptions& options);
  Result<void> open_paths(const DatasetOptions& options);
  Result<void> add_file(const DataSection& data, const std::string& path, bool from_glob);
  void add_fetched(const FetchedFiles::File& file, std::uint32_t number);
  void add_segment(Segment segment);
  Result<void> find_vocab(std::uint32_t model_vocab);
  Result<void> split(const DatasetOptions& options);
  static Result<void> check_below(const std::string& path, const std::string& root);
  Result<void> read_stream(std::uint64_t first, std::span<std::int32_t> out) const;
  Result<void> copy_tokens(const Segment& segment, std::uint64_t first,
                           std::span<std::int32_t> out) const;

  bool byte_kind_ = true;
  decltype(FetchedFiles::read) read_fetched_;
  std::vector<Segment> segments_;
  std::uint64_t tokens_ = 0;
  std::uint64_t file_bytes_ = 0;
  std::uint32_t token_bytes_ = 1;
  std::uint32_t vocab_ = 0;
  std::uint32_t sequence_ = 0;
  std::uint64_t held_out_ = 0;
  IndexPermutation split_;
};

}  // namespace swarmline
