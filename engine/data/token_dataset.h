// The tokens a run trains on, as numbered sequences of fixed length.
//   Stream:    all files one after another (data_files.h). kind "bytes": each file is one
//              document, its bytes are tokens 0..255, and kEndOfDocument follows it. kind
//              "tokens": token files as they are.
//   Parts:     of a mixture, each with a stream and sequences of its own, numbered one part after
//              the other; without weights one part. What `validation` names is a part that is held
//              out as a whole.
//   Sequence:  number n of a part is tokens [n S, n S + S] of its stream: S inputs, and S targets
//              one further on. Neighbours share one token; the tail too short for a sequence is
//              left out.
//   Split:     a seeded permutation of a part's sequences; its first ones are held out, the others
//              train. Held-out windows may share their boundary token with training ones.
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
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "engine/config/run_config.h"
#include "engine/data/data_bounds.h"
#include "engine/data/data_files.h"
#include "engine/data/permutation.h"
#include "engine/store/files.h"

namespace swarmline {

inline constexpr std::int32_t kEndOfDocument = 256;  // kind "bytes"
inline constexpr std::uint32_t kByteVocab = 257;
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
    std::uint32_t part = 0;
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
  std::vector<DataPath> paths = {};  // these files in this order, whatever `data` names
  FetchedFiles fetched = {};         // with files: these instead, and `vocab` is known
};

class TokenDataset {
 public:
  static Result<TokenDataset> open(const DatasetOptions& options);

  // The model's, if it was given, else what the data needs.
  std::uint32_t vocab() const { return vocab_; }
  // The token that each document begins with. Known of bytes, and where the data masks documents
  // and its own files were listed.
  std::optional<std::uint32_t> separator() const { return separator_; }
  std::uint32_t sequence() const { return sequence_; }  // tokens
  std::uint64_t tokens() const { return tokens_; }      // of the stream
  std::uint64_t file_bytes() const { return file_bytes_; }
  std::uint32_t token_bytes() const { return token_bytes_; }  // in the files, the widest
  std::size_t files() const { return segments_.size(); }
  std::uint64_t sequences() const { return sequences_; }
  std::uint64_t held_out_sequences() const { return held_out_; }  // or those of `validation`
  std::uint64_t train_sequences() const { return sequences() - held_out_; }  // >= 1
  std::uint32_t parts() const { return train_parts_; }                       // that train
  std::uint64_t train_sequences(std::uint32_t part) const { return parts_[part].training(); }
  const std::vector<double>& weights() const { return weights_; }  // of the parts; empty: one part

  // Sequence number of the i-th that is held out; all parts' are mixed.
  std::uint64_t held_out(std::uint64_t i) const;
  // Of the i-th of a part that trains.
  std::uint64_t train(std::uint32_t part, std::uint64_t i) const;
  std::uint64_t train(std::uint64_t i) const { return train(0, i); }  // without weights
  bool is_held_out(std::uint64_t number) const;

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
    std::uint32_t part = 0;
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
    std::uint32_t part = 0;
  };
  struct Part {
    std::uint64_t first_token = 0;  // of all parts' streams, one after another
    std::uint64_t tokens = 0;
    std::uint64_t first_sequence = 0;
    std::uint64_t held_out = 0;
    std::uint64_t first_held_out = 0;  // among all that are
    IndexPermutation split{1, 0};
    std::uint64_t training() const { return split.size() - held_out; }
  };

  TokenDataset() = default;
  Result<void> open_files(const DatasetOptions& options);
  Result<void> add_file(const DataSection& data, const DataPath& file);
  void add_fetched(const FetchedFiles::File& file, std::uint32_t number);
  void add_segment(Segment segment);
  Result<void> find_vocab(std::uint32_t model_vocab);
  Result<void> split(const DatasetOptions& options);
  Result<void> split_part(const DatasetOptions& options, std::uint32_t number);
  const Part& part_of(std::uint64_t sequence) const;
  std::uint64_t first_token_of(std::uint64_t sequence) const;
  Result<void> read_stream(std::uint64_t first, std::span<std::int32_t> out) const;
  Result<void> copy_tokens(const Segment& segment, std::uint64_t first,
                           std::span<std::int32_t> out) const;

  bool byte_kind_ = true;
  decltype(FetchedFiles::read) read_fetched_;
  std::vector<Segment> segments_;
  std::vector<Part> parts_;
  std::uint32_t train_parts_ = 1;
  std::vector<double> weights_;
  std::uint64_t tokens_ = 0;
  std::uint64_t file_bytes_ = 0;
  std::uint32_t token_bytes_ = 1;
  std::uint32_t vocab_ = 0;
  std::uint32_t sequence_ = 0;
  std::optional<std::uint32_t> separator_;
  std::uint32_t prepared_vocab_ = 0;  // that prepared folders need
  bool all_prepared_ = false;
  std::uint64_t sequences_ = 0;
  std::uint64_t held_out_ = 0;
  IndexPermutation held_out_order_{1, 0};
};

}  // namespace swarmline
