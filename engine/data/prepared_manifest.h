// What `swarmline data prepare` made: a folder of token files, with their tokenizer and this list.
// docs/formats/prepared.md.
//   Files:   raw little-endian uint16 or uint32 tokens, NAME.u16.bin or NAME.u32.bin; in the order
//            of the stream; each ends with a document, or a block of one.
//   Thread:  pure, but for read_prepared().
//   Errors:  kUserMistake with the path in the sentence; kIo.
//   Bounds:  kDataFilesMax files; kPreparedManifestBytesMax of text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/units.h"

namespace swarmline {

inline constexpr std::string_view kPreparedManifestName = "prepared.json";
inline constexpr std::uint64_t kPreparedManifestBytesMax = 16 * kMiB;
inline constexpr std::uint32_t kPreparedFormat = 1;

struct PreparedFile {
  std::string name;  // below the folder
  std::uint64_t tokens = 0;
  std::uint64_t documents = 0;  // that end in it
  std::string sha256;           // 64 hex digits
  bool operator==(const PreparedFile&) const = default;
};

struct PreparedTokenizer {
  std::string kind;    // "bytes" | "bpe" | "sentencepiece"
  std::string name;    // for people
  std::string file;    // below the folder; empty: "bytes" has none
  std::string sha256;  // of that file; of nothing: empty
  bool operator==(const PreparedTokenizer&) const = default;
};

struct PreparedManifest {
  std::uint32_t token_bytes = 2;                // 2 | 4
  std::uint32_t vocab = 0;                      // token numbers lie below it
  std::optional<std::uint32_t> document_begin;  // the token before each document
  std::optional<std::uint32_t> document_end;    // the token after each document
  std::uint64_t tokens = 0;
  std::uint64_t documents = 0;
  std::uint64_t text_bytes = 0;  // that they were made of
  PreparedTokenizer tokenizer;
  std::string made_of;  // SHA-256 of the inputs' names, sizes and times, and of the settings
  std::vector<PreparedFile> files;
  // What a model reads before a document's first word: where nothing begins documents, the end of
  // the one before. Null: nothing says where documents are.
  std::optional<std::uint32_t> separator() const {
    return document_begin ? document_begin : document_end;
  }
  bool operator==(const PreparedManifest&) const = default;
};

// What open_tokenizer() takes for the tokenizer of a prepared folder.
std::string tokenizer_path(const std::string& folder, const PreparedTokenizer& tokenizer);

std::string to_json(const PreparedManifest& manifest);
Result<PreparedManifest> parse_prepared(std::string_view text, const std::string& path);

bool is_prepared(const std::string& folder);
Result<PreparedManifest> read_prepared(const std::string& folder);

}  // namespace swarmline
